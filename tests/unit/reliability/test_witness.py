"""The witness of the history driver: what it must find, and what it must not."""

import json
from typing import Any

import pytest

from tests.reliability.history.demands import Taken, parts
from tests.reliability.history.figures import MOVED, OVERSOLD
from tests.reliability.history.machines import Card, Machine
from tests.reliability.history.story import Story
from tests.reliability.history.witness import Witness

T4 = 15360
HALF = {"aliyun.com/gpu-mem": "8"}


class Found(list[tuple[str, str]]):
    def __call__(self, what: str, text: str, _: tuple[str, ...]) -> None:
        self.append((what, text))

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self]


@pytest.fixture
def machine() -> Machine:
    return Machine("n1", [Card("GPU-a", 1, T4), Card("GPU-b", 0, T4)], ("gpushare", "aliquot"))


@pytest.fixture
def found() -> Found:
    return Found()


@pytest.fixture
def witness(machine: Machine, found: Found) -> Witness:
    return Witness({"n1": machine}, Story(), found)


def make(uid: str, limits: dict[str, str], *cards: str, node: str = "n1", **fields: Any) -> dict[str, Any]:
    """A pod with one container, bound to these cards; without any, bound and no more."""
    record = {"node": node, "containers": {"main": [{"uuid": card} for card in cards]}}
    annotations = {"aliquot.io/placement": json.dumps(record)} if cards else {}
    metadata = {"name": uid, "namespace": "default", "uid": uid, "annotations": annotations}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}, **fields}


def test_a_card_that_is_sold_twice_is_found_at_once_and_once(witness: Witness, found: Found) -> None:
    witness.see(make("p1", HALF, "GPU-a"))
    assert found == []
    witness.see(make("p2", HALF, "GPU-a"))
    witness.see(make("p2", HALF, "GPU-a", status={"phase": "Running"}))
    assert found.words == [OVERSOLD]


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        pytest.param({"nvidia.com/gpu": "1"}, "GPU-a", id="a whole card"),
        pytest.param({"tencent.com/vcuda-core": "100"}, "GPU-a", id="all cores"),
        pytest.param({"elasticgpu.io/gpu-core": "50", "elasticgpu.io/gpu-memory": "8000"}, "n1/0", id="by its index"),
    ],
)
def test_it_is_found_in_any_words(witness: Witness, found: Found, limits: dict[str, str], name: str) -> None:
    witness.see(make("p1", HALF, "GPU-a"))
    witness.see(make("p2", limits, name))
    assert found.words == [OVERSOLD]


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param({"status": {"phase": "Succeeded"}}, id="has ended"),
        pytest.param({"is_gone": True}, id="is gone"),
    ],
)
def test_what_was_given_back_may_be_sold_again(witness: Witness, found: Found, ended: dict[str, Any]) -> None:
    witness.see(make("p1", HALF, "GPU-a"))
    is_gone = ended.pop("is_gone", False)
    witness.see(make("p1", HALF, "GPU-a", **ended), is_gone=is_gone)
    witness.see(make("p2", HALF, "GPU-a"))
    assert found == []


def test_a_container_on_its_way_out_still_holds(witness: Witness, found: Found) -> None:
    running = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    witness.see(make("p1", HALF, "GPU-a", status=running))
    witness.see(make("p2", HALF, "GPU-a"))
    assert found.words == [OVERSOLD]


def test_a_pod_that_was_bound_by_hand_holds_nothing_until_it_is_placed(witness: Witness, found: Found) -> None:
    witness.see(make("p1", HALF, "GPU-a"))
    witness.see(make("p2", HALF))
    assert found == []
    assert witness.sum("GPU-a") == Taken(mib=8192, shares=1)


def test_an_index_means_the_card_that_had_it_when_the_record_was_written(
    machine: Machine, witness: Witness, found: Found
) -> None:
    witness.see(make("p1", HALF, "n1/0"))
    machine.cards.reverse()
    witness.see(make("p1", HALF, "n1/0", status={"phase": "Running"}))
    witness.see(make("p2", HALF, "GPU-b"))
    assert found == []
    witness.see(make("p3", HALF, "GPU-a"))
    assert found.words == [OVERSOLD]


@pytest.mark.parametrize(
    ("limits", "cards"),
    [
        pytest.param({"nvidia.com/gpu": "2"}, ("GPU-a",), id="too few"),
        pytest.param({"nvidia.com/gpu": "1"}, ("GPU-z",), id="not of this machine"),
        pytest.param({"nvidia.com/gpu": "2"}, ("GPU-a", "GPU-a"), id="one twice"),
    ],
)
def test_wrong_cards_are_found(witness: Witness, found: Found, limits: dict[str, str], cards: tuple[str, ...]) -> None:
    witness.see(make("p1", limits, *cards))
    witness.see(make("p1", limits, *cards, status={"phase": "Running"}))
    assert found.words == [MOVED]


def test_a_record_that_changes_is_found(witness: Witness, found: Found) -> None:
    witness.see(make("p1", HALF, "GPU-a"))
    witness.see(make("p1", HALF, "GPU-b"))
    assert found.words == [MOVED]


def test_init_containers_count_by_the_largest_moment() -> None:
    pod = make("p1", HALF)
    pod["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {"aliyun.com/gpu-mem": "3"}}}]
    assert {name: part.mib for name, part in parts(pod).items()} == {"first": 3072, "main": 8192}


def test_where_the_original_hands_over_all_memory_is_of_one_card() -> None:
    pod = make("p1", HALF)
    pod["metadata"]["labels"] = {"aliyun.com/gpu-count": "2"}
    assert [(part.cards, part.mib) for part in parts(pod).values()] == [(2, 4096)]
    assert [(part.cards, part.mib) for part in parts(pod, "gpushare").values()] == [(1, 8192)]


def test_who_fits_is_seen(machine: Machine, witness: Witness) -> None:
    witness.see(make("p1", {"nvidia.com/gpu": "1"}, "GPU-a"))
    assert witness.fits(make("p2", {"nvidia.com/gpu": "1"}), machine)
    assert not witness.fits(make("p3", {"nvidia.com/gpu": "2"}), machine)

"""The ledger: one entry per pod and node, sums that follow, refusals that change nothing."""

from typing import Any

import pytest

from aliquot.errors import AlreadyHeld, NoRoom, NotPlaced
from aliquot.ledger import Ledger, Owner, State
from aliquot.model import Charge, NodeGpus
from tests.factories import charge_of, make_cards, make_gpu, make_placement


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    for node in ("n1", "n2"):
        made.set_cards(make_cards(node))
    return made


def claim(ledger: Ledger, uid: str, node: str = "n1", index: int = 0, mib: int = 3072) -> None:
    placement = make_placement(make_cards(node), index, main=mib)
    ledger.claim(Owner(uid), placement, charge_of(placement))


def adopt(ledger: Ledger, uid: str, node: str = "n1", index: int = 0, mib: int = 3072) -> None:
    placement = make_placement(make_cards(node), index, main=mib)
    ledger.adopt(Owner(uid), placement, charge_of(placement))


def test_a_claim_takes_its_part_and_a_release_gives_it_back(ledger: Ledger) -> None:
    claim(ledger, "a")
    assert ledger.used("n1") == {"GPU-n1-0": Charge(0, 3072, shares=1)}
    assert ledger.free("n1", "GPU-n1-0") == Charge(100, 12288)
    assert ledger.release("a") == ["n1"]
    assert ledger.used("n1") == {}
    assert ledger.release("a") == []


@pytest.mark.parametrize(
    ("node", "index", "mib", "text"),
    [
        pytest.param("n1", 0, 12289, "has 12288 MiB left; the pod needs 12289 MiB", id="too much"),
        pytest.param("n3", 0, 1, "the node has no card GPU-n3-0", id="an unknown node"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused_with_the_numbers(
    ledger: Ledger, node: str, index: int, mib: int, text: str
) -> None:
    claim(ledger, "a")
    with pytest.raises(NoRoom, match=text):
        claim(ledger, "b", node, index, mib)
    assert ledger.nodes_of("b") == frozenset()


def test_claiming_again_replaces_the_earlier_claim_and_can_grow_into_its_own_part(ledger: Ledger) -> None:
    claim(ledger, "a", mib=15360)
    claim(ledger, "a", mib=15359)
    assert ledger.used("n1") == {"GPU-n1-0": Charge(0, 15359, shares=1)}


def test_a_larger_claim_that_is_refused_leaves_the_earlier_one(ledger: Ledger) -> None:
    claim(ledger, "a", mib=1000)
    version = ledger.version("n1")
    with pytest.raises(NoRoom):
        claim(ledger, "a", mib=99999)
    assert (ledger.used("n1"), ledger.version("n1")) == ({"GPU-n1-0": Charge(0, 1000, shares=1)}, version)


def test_a_pod_is_adopted_once_and_loses_its_claims_elsewhere(ledger: Ledger) -> None:
    claim(ledger, "a", "n1")
    claim(ledger, "a", "n2")
    assert ledger.nodes_of("a") == {"n1", "n2"}
    adopt(ledger, "a", "n2")
    assert ledger.nodes_of("a") == {"n2"}
    assert ledger.used("n1") == {}


def test_a_card_that_others_sold_twice_is_reported_and_has_nothing_free(ledger: Ledger) -> None:
    adopt(ledger, "a", mib=10000)
    adopt(ledger, "b", mib=10000)
    assert (ledger.oversold("n1"), ledger.oversold("n2")) == (["GPU-n1-0"], [])
    assert ledger.free("n1", "GPU-n1-0") == Charge()
    ledger.release("a")
    assert ledger.oversold("n1") == []


def test_a_confirmed_claim_is_bound_and_a_pod_that_has_gone_stays_gone(ledger: Ledger) -> None:
    claim(ledger, "a")
    ledger.confirm("a", "n1")
    ledger.confirm("gone", "n1")
    (entry,) = ledger.entries("n1")
    assert entry.state is State.BOUND


def test_a_claim_gives_exactly_what_is_asked_or_raises(ledger: Ledger) -> None:
    adopt(ledger, "a")
    claim(ledger, "a")
    assert [entry.state for entry in ledger.entries("n1")] == [State.BOUND]
    with pytest.raises(AlreadyHeld, match="pod a is bound to n1 with a different part"):
        claim(ledger, "a", index=1)
    assert list(ledger.used("n1")) == ["GPU-n1-0"]


def reassign(ledger: Ledger, uid: str, index: int, mib: int = 3072) -> None:
    placement = make_placement(make_cards("n1"), index, main=mib)
    ledger.reassign(Owner(uid), placement, charge_of(placement))


def test_a_bound_pod_gets_other_parts_of_its_node_if_they_are_free(ledger: Ledger) -> None:
    adopt(ledger, "a")
    reassign(ledger, "a", 1)
    assert ledger.used("n1") == {"GPU-n1-1": Charge(0, 3072, shares=1)}
    assert [entry.state for entry in ledger.entries("n1")] == [State.BOUND]
    adopt(ledger, "b", mib=15360)
    with pytest.raises(NoRoom):
        reassign(ledger, "a", 0)
    assert set(ledger.used("n1")) == {"GPU-n1-0", "GPU-n1-1"}


@pytest.mark.parametrize("is_claimed", [True, False], ids=["claimed", "unknown"])
def test_only_what_is_bound_is_reassigned(ledger: Ledger, *, is_claimed: bool) -> None:
    if is_claimed:
        claim(ledger, "a")
    with pytest.raises(NotPlaced, match="pod a is not bound to n1"):
        reassign(ledger, "a", 1)


def test_what_is_held_outlives_its_card_and_its_node(ledger: Ledger) -> None:
    claim(ledger, "a")
    ledger.set_cards(make_cards(mib=()))
    assert ledger.free("n1", "GPU-n1-0") == Charge()
    ledger.drop_node("n1")
    with pytest.raises(NoRoom):
        claim(ledger, "b")
    ledger.set_cards(make_cards())
    assert ledger.free("n1", "GPU-n1-0") == Charge(100, 12288)


def test_nothing_is_known_of_a_node_that_is_gone_and_held_by_nobody(ledger: Ledger) -> None:
    claim(ledger, "a")
    ledger.drop_node("n1")
    ledger.release("a")
    assert (ledger.version("n1"), ledger.entries("n1"), ledger.used("n1")) == (0, [], {})


def test_every_change_of_a_node_raises_its_version_and_no_other_s(ledger: Ledger) -> None:
    versions = [ledger.version("n1")]
    for change in (lambda: claim(ledger, "a"), lambda: ledger.release("a"), lambda: ledger.set_cards(make_cards())):
        change()
        versions.append(ledger.version("n1"))
    assert versions == sorted(set(versions))
    assert ledger.version("n2") == 1


def test_a_claim_expires_at_its_time_and_what_is_bound_never(ledger: Ledger) -> None:
    for uid, index in (("late", 0), ("bound", 0), ("later", 1)):
        placement = make_placement(make_cards("n1"), index)
        ledger.claim(Owner(uid), placement, charge_of(placement), until=10 if uid != "later" else 20)
    ledger.confirm("bound", "n1")
    assert ledger.expire(9.9) == []
    assert [entry.uid for entry in ledger.expire(10)] == ["late"]
    assert sorted(entry.uid for entry in ledger.entries("n1")) == ["bound", "later"]


def test_a_pod_of_the_same_name_with_a_new_uid_is_another(ledger: Ledger) -> None:
    placement = make_placement(make_cards("n1"))
    for uid in ("old", "old", "new"):
        ledger.adopt(Owner(uid, "default/p"), placement, charge_of(placement))
    assert [entry.uid for entry in ledger.entries("n1")] == ["old", "new"]
    assert ledger.used("n1") == {"GPU-n1-0": Charge(0, 6144, shares=2)}


MODES: list[Any] = [
    pytest.param(Charge(mib=1, slots=1), Charge(mib=1, shares=1), "is shared with MPS now", id="a slice beside MPS"),
    pytest.param(Charge(mib=1, shares=1), Charge(mib=1, slots=1), "is shared without MPS now", id="MPS beside a slice"),
    pytest.param(
        Charge(mib=1, slots=2), Charge(mib=1, slots=2), "has 1 MPS slots left; the pod needs 2", id="too many slots"
    ),
    pytest.param(Charge(cores=100), Charge(mib=1, shares=1), "0 % of cores left", id="cores sold out"),
    pytest.param(Charge(mib=1, slots=2), Charge(mib=1, slots=1), "", id="the last slot"),
]


@pytest.mark.parametrize(("held", "asked", "text"), MODES)
def test_a_card_has_one_mode_at_a_time_and_as_many_slots_as_it_was_cut_into(
    held: Charge, asked: Charge, text: str
) -> None:
    ledger = Ledger()
    cards = NodeGpus("n1", (make_gpu(slots=3),), 1024)
    ledger.set_cards(cards)
    placement = make_placement(cards)
    ledger.claim(Owner("a"), placement, {"GPU-n1-0": held})
    if text:
        with pytest.raises(NoRoom, match=text):
            ledger.claim(Owner("b"), placement, {"GPU-n1-0": asked})
    else:
        ledger.claim(Owner("b"), placement, {"GPU-n1-0": asked})


def test_only_claims_with_a_time_expire_and_a_claim_again_without_one_stays(ledger: Ledger) -> None:
    placement = make_placement(make_cards())
    for uid, until in (("a", 5.0), ("b", 9.0), ("c", 5.0), ("d", 5.0)):
        ledger.claim(Owner(uid), placement, charge_of(placement), until=until)
    ledger.claim(Owner("c"), placement, charge_of(placement))
    ledger.confirm("d", "n1")
    assert [entry.uid for entry in ledger.expire(5.0)] == ["a"]
    assert [entry.uid for entry in ledger.expire(99.0)] == ["b"]
    assert {entry.uid for entry in ledger.all()} == {"c", "d"}


def test_what_another_ledger_had_is_entered_as_it_was(ledger: Ledger) -> None:
    claim(ledger, "a")
    adopt(ledger, "b", "n2")
    again = Ledger()
    for node in ("n1", "n2"):
        again.set_cards(make_cards(node))
    again.restore(ledger.all())
    assert again.all() == ledger.all()
    assert [again.used(node) for node in ("n1", "n2")] == [ledger.used(node) for node in ("n1", "n2")]
    assert again.nodes_of("b") == {"n2"}


def test_every_change_is_counted_and_what_changes_nothing_is_not(ledger: Ledger) -> None:
    seen = [ledger.changes]
    for change in (
        lambda: claim(ledger, "a"),
        lambda: ledger.confirm("a", "n1"),
        lambda: ledger.release("a"),
        lambda: adopt(ledger, "b"),
        lambda: ledger.drop_node("n1"),
        lambda: ledger.set_cards(make_cards()),
    ):
        change()
        seen.append(ledger.changes)
    assert sorted(set(seen)) == seen
    ledger.release("nobody")
    ledger.confirm("nobody", "n1")
    ledger.expire(99.0)
    assert ledger.changes == seen[-1]
    assert ledger.is_summed_right("n1")
    assert ledger.is_summed_right("nowhere")

"""The load of the last hour, of cards and pods: what was reported, from when on, and nothing else."""

from collections.abc import Sequence

import pytest

from aliquot.control.inputs.load_history import LENGTH, PERIOD, HistoryPoint, LoadHistory, UseHistory
from aliquot.control.inputs.pod_use import PodUse, part_uses, pod_uses, unused
from aliquot.ledger import Entry, Owner, State
from aliquot.model import Charge, NodeGpus, Placement
from aliquot.model.bounds import MIB
from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from tests.factories import make_gpu

T0 = 30_000.0
CARDS = NodeGpus("n1", tuple(make_gpu(index, uuid=f"GPU-{index}", mib=16) for index in range(2)), 1)


def entry(uid: str, *uuids: str) -> Entry:
    charges = {uuid: Charge(50, 1000, shares=1) for uuid in uuids}
    return Entry(Owner(uid, f"ns/{uid}"), Placement("n1", "aliquot", {}), charges, State.BOUND)


def load(busy: float | None, **pods: float | None) -> NodeLoad:
    """Of one card, and what pods use of it."""
    used = {uid: {"GPU-0": PodLoad(MIB, cores)} for uid, cores in pods.items()}
    return NodeLoad(1.0, {"GPU-0": CardLoad(busy, 4 * MIB)}, used)


def take(history: LoadHistory, at: float, measured: NodeLoad, pods: Sequence[Entry] = (), node: str = "n1") -> None:
    history.take(node, T0 + at, measured.cards, pod_uses(measured, pods, CARDS))


def shown(history: UseHistory | None) -> list[tuple[float, float | None]]:
    assert history is not None
    return [(past.at - T0, past.cores) for past in history.samples]


def test_a_history_has_a_start_and_a_sample_for_every_half_minute() -> None:
    history = LoadHistory()
    for at, busy in ((0, 0.2), (10, 0.4), (35, 0.6), (130, 0.8)):
        take(history, at, load(busy))
    found = history.card("GPU-0")
    assert shown(found) == [(0, 0.3), (30, 0.6), (60, None), (90, None), (120, 0.8)]
    assert found is not None
    assert found.start == T0
    assert found.samples[0] == HistoryPoint(T0, 0.3, 4 * MIB)
    assert history.card("GPU-1") is None


def test_a_sample_that_does_not_know_the_cores_does_not_count_as_0() -> None:
    history = LoadHistory()
    take(history, 0, load(None))
    take(history, 10, load(0.8))
    assert shown(history.card("GPU-0")) == [(0, 0.8)]


def test_a_ring_forgets_what_is_older_than_an_hour_and_keeps_its_start() -> None:
    history = LoadHistory()
    for number in range(LENGTH + 5):
        take(history, number * PERIOD, load(number / 1000))
    found = history.card("GPU-0")
    assert found is not None
    assert (found.start, len(found.samples)) == (T0, LENGTH)
    assert (found.samples[0].cores, found.samples[-1].cores) == (0.005, 0.124)


def test_a_clock_that_is_set_back_changes_no_past() -> None:
    history = LoadHistory()
    take(history, 60, load(0.5))
    take(history, 0, load(0.7))
    assert shown(history.card("GPU-0")) == [(60, 0.6)]


def test_a_card_that_is_gone_has_no_history_and_leaves_room_for_another() -> None:
    history = LoadHistory()
    take(history, 0, load(0.5))
    take(history, 30, NodeLoad(2.0, {"GPU-1": CardLoad(0.1)}))
    assert history.card("GPU-0") is None
    history.forget_node("n1")
    assert history.card("GPU-1") is None
    take(history, 60, load(0.9), node="n2")
    assert shown(history.card("GPU-0")) == [(60, 0.9)]


def test_a_pod_is_idle_from_when_it_was_last_at_work() -> None:
    history = LoadHistory()
    pods = [entry("p", "GPU-0"), entry("q", "GPU-0")]
    for at, busy in ((0, 0.5), (30, 0.4), (60, 0.0), (90, 0.01)):
        take(history, at, load(0.5, p=busy, q=0.3), pods)
    assert history.idle_since("p") == T0 + 60
    assert history.idle_since("q") is None
    found = history.pod("p")
    assert found is not None
    assert found.idle_since == T0 + 60
    history.forget_pod("p")
    assert (history.pod("p"), history.idle_since("p"), history.use("p")) == (None, None, None)


def test_a_pod_that_never_worked_is_idle_from_its_first_sample_on() -> None:
    history = LoadHistory()
    for at in (0, 30, 60):
        take(history, at, load(0.0), [entry("p", "GPU-0")])
    assert history.idle_since("p") == T0


def test_beyond_the_bound_there_is_no_history() -> None:
    history = LoadHistory(most=1)
    cards = {f"GPU-{number}": CardLoad(0.5) for number in range(3)}
    take(history, 0, NodeLoad(1.0, cards))
    assert [history.card(uuid) is None for uuid in sorted(cards)] == [False, True, True]


def test_ten_thousand_rings_take_less_than_10_mb() -> None:
    history = LoadHistory()
    for node in range(100):
        cards = {f"GPU-{node}-{number}": CardLoad(0.5) for number in range(100)}
        take(history, 0, NodeLoad(1.0, cards), node=f"n{node}")
    assert history.nbytes < 10e6


# -- what pods use


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        pytest.param(load(0.7, p=0.3, q=0.4), {"p": 0.3, "q": 0.4}, id="as measured"),
        pytest.param(load(0.7, p=0.7), {"p": 0.7, "q": 0.0}, id="a pod without processes is idle"),
        pytest.param(load(0.7), {"p": None, "q": None}, id="an agent that sees no processes"),
        pytest.param(load(0.01), {"p": 0.01, "q": 0.01}, id="on an idle card all are idle"),
        pytest.param(load(None, p=None), {"p": None, "q": 0.0}, id="memory alone tells nothing of cores"),
        pytest.param(NodeLoad(1.0), {"p": None, "q": None}, id="a card that does not answer"),
    ],
)
def test_what_two_pods_on_one_card_use(measured: NodeLoad, expected: dict[str, float | None]) -> None:
    found = pod_uses(measured, [entry("p", "GPU-0"), entry("q", "GPU-0")], CARDS)
    assert {uid: use.cores for uid, use in found.items()} == expected


def test_a_pod_alone_on_its_card_uses_what_the_card_does() -> None:
    assert pod_uses(load(0.7), [entry("p", "GPU-0")], CARDS) == {"p": PodUse(0.7, 4 * MIB, 0.7)}


def test_a_pod_may_only_look_alone_to_a_reader_who_does_not_see_all_pods() -> None:
    found = part_uses(load(0.7), [entry("p", "GPU-0")], CARDS, are_all=False)
    assert found == {"p": {"GPU-0": PodUse()}}


def test_a_pod_of_two_cards_uses_their_sum_and_a_pod_that_holds_nothing_uses_nothing() -> None:
    cards = {"GPU-0": CardLoad(0.5), "GPU-1": CardLoad(0.25)}
    measured = NodeLoad(
        1.0,
        cards,
        {"p": {"GPU-0": PodLoad(MIB, 0.5), "GPU-1": PodLoad(8 * MIB, 0.25)}, "stranger": {"GPU-0": PodLoad(9)}},
    )
    both = {"p": PodUse(0.75, 9 * MIB, 0.5 + 0.5)}
    assert pod_uses(measured, [entry("p", "GPU-0", "GPU-1")], CARDS) == both, "memory is half of the second card"


@pytest.mark.parametrize(
    ("part", "share"),
    [
        pytest.param(PodLoad(4 * MIB, 0.5), 0.5, id="by its cores"),
        pytest.param(PodLoad(12 * MIB, 0.5), 0.75, id="by its memory"),
        pytest.param(PodLoad(12 * MIB), None, id="memory alone does not tell"),
    ],
)
def test_what_a_pod_does_not_use_is_wasted(part: PodLoad, share: float | None) -> None:
    measured = NodeLoad(1.0, {"GPU-0": CardLoad(None)}, {"p": {"GPU-0": part}})
    (use,) = pod_uses(measured, [entry("p", "GPU-0")], CARDS).values()
    assert use.share == share
    assert (unused(1.0, use), unused(0.1, use)) == (1.0 - (share or 0.0), max(0.0, 0.1 - (share or 0.0)))

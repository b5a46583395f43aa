"""The health of cards: readings, errors of the driver and people's words, and how each ends."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from aliquot.agent.card_health import CardHealth, LastingError
from aliquot.agent.devices import CardError, Machine, Usage
from aliquot.agent.nvidia import xids
from tests.factories import make_gpu

A, B = make_gpu(0, uuid="GPU-a"), make_gpu(1, uuid="GPU-b")
GOOD = Machine((A, B))
LOST = Machine((replace(A, healthy=False), B), faults={"GPU-a": "lost"}, absent=frozenset(["GPU-a"]))
HOT = Machine((replace(A, healthy=False), B), faults={"GPU-a": "it has 99 degrees"})
DRAINED = "XID 79: the card fell off the bus"
CORDONED = "XID 74: an NVLink failed; `dmesg` on the node tells whether it was fatal"


def make_health(machine: Machine = GOOD, errors: Mapping[str, LastingError] | None = None) -> CardHealth:
    return CardHealth(lambda code: xids.judge(code, {}), machine, errors)


def shown(health: CardHealth) -> list[tuple[bool, str, str]]:
    """Whether each card is healthy, why not, and why it is cordoned."""
    return [(state.gpu.healthy, state.fault, state.cordon) for state in health.states()]


FINE = (True, "", "")


@pytest.fixture
def health() -> CardHealth:
    return make_health()


def test_a_fault_of_a_reading_ends_with_it_and_is_of_one_card(health: CardHealth) -> None:
    health.see_machine(HOT)
    assert shown(health) == [(False, "it has 99 degrees", ""), FINE]
    health.see_machine(GOOD)
    assert shown(health) == [FINE, FINE]


def test_without_a_driver_every_card_is_unhealthy(health: CardHealth) -> None:
    health.see_machine(None)
    assert [state.fault for state in health.states()] == ["the driver shows no card"] * 2
    health.see_machine(GOOD)
    assert shown(health) == [FINE, FINE]


def test_the_usage_of_a_card_ends_with_its_answers(health: CardHealth) -> None:
    busy, idle = Usage(cores=0.5), Usage(cores=0.0)
    health.see_machine(replace(HOT, usage={"GPU-a": busy, "GPU-b": idle}))
    assert [state.usage for state in health.states()] == [busy, idle]
    health.see_machine(replace(LOST, usage={"GPU-b": idle}))
    assert [state.usage for state in health.states()] == [Usage(), idle]
    health.see_machine(None)
    assert [state.usage for state in health.states()] == [Usage(), Usage()]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        pytest.param([31], FINE, id="a program's own error"),
        pytest.param([74], (True, "", CORDONED), id="cordon"),
        pytest.param([79], (False, DRAINED, ""), id="drain"),
        pytest.param([74, 79], (False, DRAINED, ""), id="the worse one counts"),
        pytest.param([79, 74], (False, DRAINED, ""), id="also if it came first"),
        pytest.param([4711], (True, "", "XID 4711: an error that Aliquot's table does not know"), id="an unknown one"),
    ],
)
def test_errors_are_judged_and_are_of_one_card(
    health: CardHealth, codes: list[int], expected: tuple[bool, str, str]
) -> None:
    for code in codes:
        assert health.see_error(CardError("GPU-a", code)) is not None
    assert shown(health) == [expected, FINE]
    health.see_machine(GOOD)
    assert shown(health) == [expected, FINE], "a good reading does not end an error"


def test_an_error_of_no_card_of_this_node_changes_nothing(health: CardHealth) -> None:
    assert health.see_error(CardError("", 79)) is None
    assert shown(health) == [FINE, FINE]


@pytest.mark.parametrize(
    "away",
    [
        pytest.param(LOST, id="it was off the bus"),
        pytest.param(Machine((B,)), id="the driver did not list it"),
        pytest.param(None, id="the driver restarted"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False], ids=["error first", "loss first"])
def test_a_card_that_was_away_and_is_back_has_been_reset(
    health: CardHealth, away: Machine | None, is_first: bool
) -> None:
    if is_first:
        health.see_error(CardError("GPU-a", 79))
    health.see_machine(away)
    if not is_first and away != Machine((B,)):
        health.see_error(CardError("GPU-a", 79))
    assert not any(state.gpu.uuid == "GPU-a" and state.gpu.healthy for state in health.states())
    health.see_machine(GOOD)
    assert shown(health) == [FINE, FINE]


@pytest.mark.parametrize("machine", [HOT, replace(LOST, absent=frozenset())], ids=["hot", "hung"])
def test_a_card_that_was_hot_or_hung_has_not_been_reset(health: CardHealth, machine: Machine) -> None:
    health.see_error(CardError("GPU-a", 79))
    health.see_machine(machine)
    health.see_machine(GOOD)
    assert shown(health) == [(False, DRAINED, ""), FINE]


# -- what people say

GOOD_WORD, BAD_WORD = {"cordon.aliquot.io/GPU-a": "false"}, {"cordon.aliquot.io/GPU-a": "true"}


def test_a_person_s_cordon_is_told_and_not_published(health: CardHealth) -> None:
    """The server reads it itself: a dead agent must not keep a card cordoned."""
    health.see_annotations(BAD_WORD)
    (state, other) = health.states()
    assert (state.cordon, other.cordon) == ("it was cordoned by hand", "")
    assert not state.gpu.cordoned
    health.see_annotations({})
    assert shown(health) == [FINE, FINE]


def test_a_person_s_word_ends_earlier_errors_and_no_later_ones(health: CardHealth) -> None:
    health.see_error(CardError("GPU-a", 79))
    health.see_annotations(GOOD_WORD)
    assert shown(health) == [FINE, FINE]
    health.see_error(CardError("GPU-a", 79))
    health.see_annotations(GOOD_WORD)
    health.see_machine(GOOD)
    assert shown(health) == [(False, DRAINED, ""), FINE], "the word is older than the error"
    health.see_annotations({})
    assert shown(health) == [(False, DRAINED, ""), FINE], "taking the word back says nothing"
    health.see_annotations(GOOD_WORD)
    assert shown(health) == [FINE, FINE], "said again"


def test_a_person_s_word_does_not_hide_what_the_reading_shows(health: CardHealth) -> None:
    health.see_machine(HOT)
    health.see_annotations(GOOD_WORD)
    assert shown(health)[0] == (False, "it has 99 degrees", "")


@pytest.mark.parametrize(("word", "is_newer", "healthy"), [(GOOD_WORD, False, True), (GOOD_WORD, True, False)])
def test_errors_outlast_the_agent_and_so_does_the_order_of_error_and_word(
    word: Mapping[str, str], is_newer: bool, healthy: bool
) -> None:
    health = make_health(errors={"GPU-a": LastingError(79, is_newer)})
    assert not health.states()[0].gpu.healthy
    health.see_annotations(word)
    assert health.states()[0].gpu.healthy is healthy


def test_an_error_of_a_card_is_one_of_its_mig_instances() -> None:
    instance = make_gpu(1000, uuid="MIG-1", parent="GPU-a", profile="1g.5gb")
    health = make_health(Machine((A, B, instance)))
    health.see_error(CardError("GPU-a", 48))
    assert [state.gpu.healthy for state in health.states()] == [False, True, False]
    health.see_annotations(GOOD_WORD)
    assert [state.gpu.healthy for state in health.states()] == [True, True, True]
    health.see_error(CardError("MIG-1", 94))
    health.see_error(CardError("MIG-1", 95))
    assert [state.gpu.healthy for state in health.states()] == [True, True, False]

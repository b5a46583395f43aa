"""Who may search, and when again: pods that cost much wait longer and longer, and no namespace takes others' time."""

import pytest

from aliquot.control.state.search_budget import SearchBudget
from aliquot.engine import FULL_EFFORT, Effort
from aliquot.model import ContainerRequest, Part, Request
from tests.fakes import FakeClock

ENDLESS = 99 * FULL_EFFORT
SECOND = FULL_EFFORT
"""In steps."""


class WorkingClock(FakeClock):
    def work(self, seconds: float) -> None:
        """Time goes by in the midst of a decision."""
        self._now += seconds


class Decisions:
    def __init__(self) -> None:
        self.clock = WorkingClock()
        self.searches = SearchBudget(self.clock, is_known=lambda request: request.namespace not in self.made_up)
        self.made_up: set[str] = set()

    def decide(
        self,
        request: Request,
        steps: int = ENDLESS,
        *,
        finds: bool = False,
        places: bool = True,
        tries: bool = False,
        slow: float = 0.0,
    ) -> int:
        """A decision that would take so many steps to its end, each of `slow` times what it should take; returns how
        many it was allowed."""
        allowed: list[int] = []

        def question(effort: Effort) -> bool:
            allowed.append(effort.steps)
            ended = effort.take(steps)
            self.clock.work(slow * effort.spent / SECOND)
            return ended and finds

        self.searches.ask(request, question, places=places, tries=tries)
        return allowed[0]

    def pause(self, request: Request) -> float:
        return self.searches.waits_until(request.uid) - self.clock.monotonic()


@pytest.fixture
def decisions() -> Decisions:
    return Decisions()


def pod(uid: str = "u", namespace: str = "default", containers: int = 2) -> Request:
    parts = (ContainerRequest(f"c{place}", Part()) for place in range(containers))
    return Request(uid, f"{namespace}/{uid}", "aliquot", tuple(parts))


# -- one pod


async def test_a_pod_that_used_up_its_effort_waits_twice_as_long_each_time_up_to_five_minutes(
    decisions: Decisions,
) -> None:
    pauses: list[float] = []
    for _ in range(11):
        assert decisions.decide(pod()) == FULL_EFFORT
        pauses.append(decisions.pause(pod()))
        assert decisions.decide(pod()) == 0, "it is answered without a search"
        await decisions.clock.move(3600)
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


async def test_being_answered_without_a_search_does_not_make_it_wait_longer(decisions: Decisions) -> None:
    decisions.decide(pod())
    for _ in range(9):
        await decisions.clock.move(0.1)
        assert decisions.decide(pod()) == 0
    await decisions.clock.move(0.2)
    assert decisions.decide(pod()) == FULL_EFFORT


@pytest.mark.parametrize(
    ("steps", "finds"),
    [pytest.param(SECOND // 10, False, id="fits nowhere, for certain"), pytest.param(SECOND // 10, True, id="found")],
)
async def test_a_pod_whose_search_ends_may_search_again(decisions: Decisions, steps: int, finds: bool) -> None:
    for _ in range(3):
        assert decisions.decide(pod(), steps, finds=finds) == FULL_EFFORT


async def test_a_place_that_was_found_starts_the_pauses_anew(decisions: Decisions) -> None:
    for _ in range(5):
        decisions.decide(pod())
        await decisions.clock.move(3600)
    decisions.decide(pod(), 10, finds=True)
    decisions.decide(pod())
    assert decisions.pause(pod()) == 1


async def test_a_pod_that_is_gone_is_forgotten(decisions: Decisions) -> None:
    decisions.decide(pod())
    decisions.searches.forget("u")
    assert decisions.decide(pod()) == FULL_EFFORT


async def test_pods_that_need_no_search_are_never_kept_waiting(decisions: Decisions) -> None:
    for number in range(20):
        decisions.decide(pod(f"hard-{number}"))
    assert decisions.decide(pod("one container", containers=1)) == FULL_EFFORT


# -- namespaces


async def test_a_namespace_that_has_searched_for_two_seconds_gets_a_tenth_of_the_time(decisions: Decisions) -> None:
    """Always another pod, as a controller makes them: one a second for ten minutes."""
    searched = 0
    for second in range(600):
        searched += decisions.decide(pod(f"hard-{second}")) > 0
        await decisions.clock.move(1)
    assert 60 <= searched <= 63


async def test_other_namespaces_search_as_before(decisions: Decisions) -> None:
    for number in range(9):
        decisions.decide(pod(f"hard-{number}", "greedy"))
    assert decisions.decide(pod("own", "greedy")) == 0
    assert decisions.decide(pod("other", "modest")) == FULL_EFFORT


async def test_a_pod_whose_namespace_has_no_time_left_is_searched_when_it_has(decisions: Decisions) -> None:
    for number in range(3):
        decisions.decide(pod(f"hard-{number}"))
    assert decisions.decide(pod()) == 0
    await decisions.clock.move(decisions.pause(pod()))
    assert decisions.decide(pod()) == FULL_EFFORT


async def test_many_namespaces_together_get_three_tenths_of_the_time(decisions: Decisions) -> None:
    searched = 0
    for second in range(600):
        for number in range(20):
            searched += decisions.decide(pod(f"hard-{second}-{number}", f"ns-{number}")) > 0
        await decisions.clock.move(1)
    assert 180 <= searched <= 200


async def test_a_pod_that_has_found_a_place_may_have_it_though_its_namespace_has_no_time_left(
    decisions: Decisions,
) -> None:
    found = pod("found")
    for number in range(3):
        decisions.decide(pod(f"hard-{number}"), SECOND // 2)
    assert decisions.decide(found, SECOND - 1, finds=True) == FULL_EFFORT
    assert decisions.decide(pod("other")) == 0
    assert decisions.decide(found, finds=True) == FULL_EFFORT, "it is scored and bound"
    await decisions.clock.move(0.5)
    assert decisions.decide(pod("third")) == 0, "but it was charged for that"


async def test_victims_that_were_found_are_no_place(decisions: Decisions) -> None:
    preemptor = pod()
    for _ in range(3):
        decisions.decide(preemptor, SECOND - 1, finds=True, places=False)
    assert decisions.decide(preemptor, SECOND - 1, finds=True, places=False) == 0


@pytest.mark.parametrize("greedy", [3, 4, 10])
async def test_a_namespace_that_uses_less_than_its_share_is_searched_whatever_others_take(
    decisions: Decisions, greedy: int
) -> None:
    """The greedy ones have a hard pod each second, the modest one needs a moment every five seconds."""
    searched = 0
    for second in range(600):
        for number in range(greedy):
            decisions.decide(pod(f"hard-{second}-{number}", f"ns-{number}"), slow=1.0)
        if second % 5 == 4:
            searched += decisions.decide(pod(f"modest-{second}", "modest"), SECOND // 20, finds=True, slow=1.0) > 0
        await decisions.clock.move(1)
    assert searched >= 0.9 * 120


async def test_pods_that_are_not_known_have_one_account_for_all_namespaces_that_they_claim(
    decisions: Decisions,
) -> None:
    decisions.made_up = {f"made-up-{number}" for number in range(20)}
    searched = [decisions.decide(pod(f"hard-{number}", f"made-up-{number}")) > 0 for number in range(20)]
    assert sum(searched) <= 3
    assert decisions.pause(pod("hard-19")) < 0, "it may be known in a moment"
    assert decisions.decide(pod("real", "real")) == FULL_EFFORT


# -- victims, which are sought for every pod


async def test_victims_of_a_pod_that_needs_no_search_are_sought_for_a_second_and_charged(decisions: Decisions) -> None:
    searched = [decisions.decide(pod(f"high-{number}", containers=1), tries=True) for number in range(20)]
    assert searched[:2] == [FULL_EFFORT] * 2
    assert set(searched[3:]) == {FULL_EFFORT // 20}, "everyone has a moment"
    assert decisions.decide(pod("hard")) == 0, "its namespace has no time left"
    assert decisions.decide(pod("elsewhere", "other")) == FULL_EFFORT


async def test_everyday_preemption_costs_its_namespace_nothing(decisions: Decisions) -> None:
    for number in range(1000):
        everyday = pod(f"high-{number}", containers=1)
        assert decisions.decide(everyday, SECOND // 20, finds=True, tries=True) == FULL_EFFORT


async def test_a_pod_whose_victims_were_sought_in_vain_is_placed_as_before(decisions: Decisions) -> None:
    high = pod("high", containers=1)
    decisions.decide(high, tries=True)
    assert decisions.decide(high, tries=True) == FULL_EFFORT // 20, "its victims are sought later"
    assert not decisions.searches.is_waiting("high")
    assert decisions.decide(high) == FULL_EFFORT


# -- machines


async def test_a_slow_machine_gets_fewer_steps_for_its_second(decisions: Decisions) -> None:
    for number in range(30):
        decisions.decide(pod(f"hard-{number}"), slow=4.0)
        await decisions.clock.move(3600)
    assert decisions.decide(pod()) == pytest.approx(FULL_EFFORT / 4, rel=0.01)


async def test_a_machine_that_stood_still_is_not_taken_for_one_without_any_time(decisions: Decisions) -> None:
    decisions.decide(pod("stopped"), SECOND // 2, slow=3600.0)
    await decisions.clock.move(60)
    assert decisions.decide(pod()) >= FULL_EFFORT // 10


# -- bounds


async def test_what_is_remembered_is_bounded(decisions: Decisions) -> None:
    """Of 10,000 pods; the oldest is forgotten and may search again, once its namespace may."""
    for number in range(10_001):
        decisions.decide(pod(f"hard-{number}", f"ns-{number}"))
        await decisions.clock.move(10)
    assert decisions.searches.waits_until("hard-0") < 0
    assert decisions.searches.waits_until("hard-1") > 0

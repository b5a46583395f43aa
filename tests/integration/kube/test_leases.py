"""Leader election: never two at once, whatever the clocks and the network do."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from aliquot.errors import BadConfig
from aliquot.kube import LEASES, Client, KubeError, LeaderElector, LeaseTiming, NoAnswer
from aliquot.kube.resources import Lease, LeaseSpec
from tests.fakes import FakeClock, Fault, ScriptedApi, answer, cut_after, cut_before, held, late, until

LEASE = "/leases/aliquot-server|/leases$"


@dataclass
class Skewed:
    """The same time as another clock shows, hours away."""

    true: FakeClock
    away: float

    def monotonic(self) -> float:
        return self.true.monotonic() + self.away

    def wall_ns(self) -> int:
        return self.true.wall_ns() + int(self.away * 1e9)

    async def sleep(self, seconds: float) -> None:
        await self.true.sleep(seconds)


class Election:
    def __init__(self, api: ScriptedApi, client: Client, clock: FakeClock) -> None:
        self.api, self.client, self.clock = api, client, clock
        self.a = self.candidate("a", 0)
        self.b = self.candidate("b", 7200)

    def candidate(self, name: str, away: float = 0) -> LeaderElector:
        return LeaderElector(self.client, "aliquot-server", "default", name, clock=Skewed(self.clock, away))

    async def lease(self) -> Lease:
        return await self.client.get(LEASES, "aliquot-server", "default")

    async def spec(self) -> LeaseSpec:
        return (await self.lease()).spec

    def renewals(self) -> int:
        return len([seen for seen in self.api.writes() if "leases" in seen.path])


@pytest.fixture
def election(scripted: ScriptedApi, client: Client, clock: FakeClock) -> Election:
    return Election(scripted, client, clock)


async def test_a_lease_that_is_not_there_is_made_and_held(election: Election) -> None:
    await election.a.attempt()
    assert election.a.holds()
    assert await election.spec() == LeaseSpec("a", 15, "2023-11-14T22:30:00.000000Z", "2023-11-14T22:30:00.000000Z", 0)
    await election.b.attempt()
    assert not election.b.holds()
    assert (election.a.holder, election.b.holder) == ("a", "a")


async def test_a_renewal_moves_only_its_time_and_leaves_what_others_wrote(election: Election) -> None:
    await election.a.attempt()
    await election.client.patch(LEASES, "aliquot-server", {"metadata": {"labels": {"x": "1"}}}, namespace="default")
    await election.clock.move(2.5)
    await election.a.attempt()
    assert election.a.holds(), "that somebody else wrote a label costs one try, not the Lease"
    await election.a.attempt()
    lease = await election.lease()
    assert lease.metadata.labels == {"x": "1"}
    assert lease.spec == LeaseSpec("a", 15, "2023-11-14T22:30:00.000000Z", "2023-11-14T22:30:02.500000Z", 0)


async def test_who_does_not_renew_in_time_stops_believing_before_others_may_begin(election: Election) -> None:
    await election.a.attempt()
    await election.b.attempt()
    await election.clock.move(9.9)
    assert election.a.holds()
    await election.clock.move(0.2)
    assert not election.a.holds()
    await election.clock.move(4.8)
    await election.b.attempt()
    assert not election.b.holds()
    await election.clock.move(0.2)
    assert election.b.holder == ""
    await election.b.attempt()
    assert election.b.holds()
    assert (await election.spec()).lease_transitions == 1
    await election.a.attempt()
    assert not election.a.holds()
    assert election.a.holder == "b"


async def test_the_duration_counts_from_when_the_last_change_was_seen_not_from_what_the_lease_says(
    election: Election,
) -> None:
    """The Lease's own times are two hours old for the second candidate."""
    await election.a.attempt()
    await election.clock.move(9)
    await election.b.attempt()
    await election.a.attempt()
    await election.clock.move(9)
    await election.b.attempt()
    await election.clock.move(14.9)
    await election.b.attempt()
    assert not election.b.holds()
    await election.clock.move(0.1)
    await election.b.attempt()
    assert election.b.holds()


async def test_a_slow_renewal_counts_from_when_it_was_sent(election: Election) -> None:
    arrived, release = asyncio.Event(), asyncio.Event()
    election.api.script("POST", LEASE, held(arrived, release))
    trying = asyncio.create_task(election.a.attempt())
    await arrived.wait()
    await election.clock.move(8)
    release.set()
    await trying
    assert election.a.holds()
    await election.clock.move(2)
    assert not election.a.holds()


async def test_a_lease_taken_by_another_is_lost_at_once(election: Election) -> None:
    await election.a.attempt()
    spec = {"holderIdentity": "b", "renewTime": "2026-01-01T00:00:00.000000Z"}
    await election.client.patch(LEASES, "aliquot-server", {"spec": spec}, namespace="default")
    await election.a.attempt()
    assert not election.a.holds()
    assert election.a.holder == "b"


async def test_of_two_who_see_it_free_one_gets_it(election: Election) -> None:
    await asyncio.gather(election.a.attempt(), election.b.attempt())
    assert election.a.holds() != election.b.holds()
    await election.clock.move(20)
    third = election.candidate("c")
    await third.attempt()
    await election.clock.move(20)
    await asyncio.gather(*(each.attempt() for each in (election.a, election.b, third)))
    assert sum(each.holds() for each in (election.a, election.b, third)) == 1


async def test_a_lease_that_was_deleted_is_not_taken_while_its_holder_may_believe_in_itself(election: Election) -> None:
    await election.a.attempt()
    await election.b.attempt()
    await election.client.delete(LEASES, "aliquot-server", "default")
    await election.b.attempt()
    assert not election.b.holds()
    await election.a.attempt()
    await election.a.attempt()
    assert election.a.holds()
    assert (await election.spec()).lease_transitions == 1


async def test_what_is_given_back_is_free_at_once(election: Election) -> None:
    await election.a.attempt()
    await election.b.attempt()
    await election.a.release()
    assert not election.a.holds()
    assert (await election.spec()).holder_identity is None
    await election.b.attempt()
    assert election.b.holds()
    writes = election.renewals()
    await election.a.release()
    assert election.renewals() == writes, "who holds nothing gives nothing back"


async def test_who_cannot_give_it_back_still_stops_believing(election: Election) -> None:
    await election.a.attempt()
    election.api.script("PATCH", LEASE, answer(500, message="away"))
    await election.a.release()
    assert not election.a.holds()


@pytest.mark.parametrize("fault", [cut_before, cut_after, answer(500), answer(429)])
async def test_a_renewal_without_an_answer_changes_no_belief(election: Election, fault: Fault) -> None:
    election.api.script("POST", LEASE, fault)
    with pytest.raises(KubeError):
        await election.a.attempt()
    assert not election.a.holds(), "it may be made, but nobody said so"
    await election.a.attempt()
    assert election.a.holds()
    await election.clock.move(5)
    election.api.script("PATCH", LEASE, fault)
    with pytest.raises(KubeError):
        await election.a.attempt()
    await election.clock.move(4.9)
    assert election.a.holds()
    await election.clock.move(0.1)
    assert not election.a.holds()
    await election.a.attempt()
    assert election.a.holds(), "its own Lease can be taken again without a wait"


@pytest.mark.parametrize("start", range(5))
async def test_never_do_two_believe_to_hold_it(election: Election, start: int) -> None:
    """Whoever tries when, with answers lost before and after the write, pauses of any length and Leases given back."""
    dice = random.Random(start)
    candidates = [election.candidate(str(number), number * 1000.0) for number in range(3)]
    held_by: set[int] = set()
    for _ in range(150):
        if dice.random() < 0.3:
            method = dice.choice(["GET", "POST", "PATCH"])
            election.api.script(method, LEASE, dice.choice([cut_after, answer(500), answer(409), answer(429)]))
        chosen = dice.sample(candidates, dice.choice([1, 1, 2, 3]))
        await asyncio.gather(*(each.attempt() for each in chosen), return_exceptions=True)
        believing = [number for number, each in enumerate(candidates) if each.holds()]
        assert len(believing) <= 1
        held_by.update(believing)
        if dice.random() < 0.1:
            await dice.choice(candidates).release()
        await election.clock.move(dice.choice([0.0, 0.5, 2.0, 2.0, 9.0, 15.0]))
        assert sum(each.holds() for each in candidates) <= 1
    assert len(held_by) > 1


@pytest.mark.parametrize(
    "terms", [{"duration": 10}, {"renew": 2.4}, {"retry": 0}, {"renew": 20}], ids=["short", "rare", "never", "long"]
)
def test_terms_that_cannot_keep_the_rule_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="lease duration"):
        LeaseTiming(**terms)


# -- running


class Leader:
    def __init__(self, elector: LeaderElector) -> None:
        self.elector = elector
        self.did: list[str] = []
        self.end = asyncio.Event()
        self.task = asyncio.create_task(elector.run(self._lead))

    async def _lead(self) -> None:
        self.did.append("began")
        try:
            await self.end.wait()
            self.end.clear()
        finally:
            self.did.append("ended" if self.elector.holds() else "lost")


@pytest.fixture
async def leader(election: Election) -> AsyncIterator[Leader]:
    made = Leader(election.a)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_a_leader_renews_and_gives_back_when_it_is_stopped(election: Election, leader: Leader) -> None:
    def rests_after(renewals: int) -> bool:
        """A pause is shorter than any time that a try may take."""
        return election.renewals() == renewals and election.clock.sleeping == 1 and election.clock.asked[-1] <= 2.4

    for count in range(1, 7):
        await until(partial(rests_after, count), f"renewal {count}")
        await election.clock.move(2.4 if count < 6 else 0)
    assert election.a.holds()
    leader.task.cancel()
    await asyncio.gather(leader.task, return_exceptions=True)
    assert leader.did == ["began", "ended"]
    assert (await election.spec()).holder_identity is None


async def test_a_leader_whose_server_is_silent_is_stopped_in_time_and_stands_again(
    election: Election, leader: Leader
) -> None:
    await until(lambda: leader.did == ["began"] and election.clock.sleeping == 1)
    arrived = asyncio.Event()
    election.api.script("PATCH", LEASE, held(arrived, asyncio.Event()))
    await election.clock.move(2.4)
    await arrived.wait()
    await election.clock.move(8)
    await until(lambda: leader.did[:2] == ["began", "lost"])
    await until(lambda: leader.did == ["began", "lost", "began"], passing=election.clock)


async def test_a_leader_that_returns_gives_back_and_stands_again(election: Election, leader: Leader) -> None:
    await until(lambda: leader.did == ["began"])
    leader.end.set()
    await until(lambda: leader.did == ["began", "ended", "began"], passing=election.clock)


async def test_what_a_leader_raises_is_raised_when_the_lease_is_given_back(election: Election) -> None:
    async def fail() -> None:
        raise NoAnswer("tests")

    with pytest.raises(NoAnswer, match="tests"):
        await election.a.run(fail)
    assert (await election.spec()).holder_identity is None


async def test_a_second_candidate_waits_and_follows(election: Election, leader: Leader) -> None:
    await until(lambda: leader.did == ["began"])
    second = Leader(election.b)
    try:
        await until(lambda: election.b.holder == "a")
        leader.task.cancel()
        await asyncio.gather(leader.task, return_exceptions=True)
        await until(lambda: second.did == ["began"], passing=election.clock)
    finally:
        second.task.cancel()
        await asyncio.gather(second.task, return_exceptions=True)


async def test_who_gives_no_sign_of_life_neither_takes_nor_keeps_the_lease(election: Election) -> None:
    """Its thread goes on, and whoever leads on another one does not."""
    lives = True
    a = LeaderElector(election.client, "aliquot-server", "default", "a", clock=election.clock, is_alive=lambda: lives)
    await a.attempt()
    await election.b.attempt()
    assert (a.holds(), election.b.holds()) == (True, False)
    lives, before = False, election.renewals()
    await election.clock.move(9)
    await a.attempt()
    assert (a.holds(), election.renewals()) == (True, before), "what was renewed lasts until its end"
    await election.clock.move(1)
    assert not a.holds()
    await election.clock.move(5)
    await a.attempt()
    assert not a.holds()
    await election.b.attempt()
    assert election.b.holds()


async def test_a_lease_is_given_back_although_a_renewal_arrived_unnoticed(election: Election) -> None:
    await election.a.attempt()
    await election.clock.move(1)
    done = asyncio.Event()
    election.api.script("PATCH", LEASE, late(done, asyncio.Event()))
    renewal = asyncio.create_task(election.a.attempt())
    await done.wait()
    renewal.cancel()
    await election.a.release()
    assert not (await election.spec()).holder_identity


async def test_a_lease_that_another_has_taken_is_not_given_back(election: Election) -> None:
    await election.a.attempt()
    taken = {"spec": {"holderIdentity": "b"}}
    await election.client.patch(LEASES, "aliquot-server", taken, namespace="default")
    await election.a.release()
    assert (await election.spec()).holder_identity == "b"

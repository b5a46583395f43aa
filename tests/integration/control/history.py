"""A control plane through any history: pods, Bindings, faults, ends and restarts, with checks after every step.

tests/integration runs it briefly, tests/soak for as long as it is told to.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import strategies as st

from aliquot.embedded.api import resources
from aliquot.errors import AliquotError
from aliquot.kube import Access, Client
from aliquot.ledger import State
from tests.factories import GPU_MEM, container_manifest, make_cards, node_manifest, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, answer, cut_after, cut_before
from tests.integration.room import Room

NODES = ("n1", "n2")
UNITS = 15
CORES = 32
FAULTS = {"cut before": cut_before, "cut after": cut_after, "500": answer(500), "429": answer(429)}

pods = st.integers(0, 5)
nodes = st.sampled_from(NODES)
_steps = st.one_of(
    st.tuples(st.just("make"), pods, st.integers(1, 9)),
    st.tuples(st.just("bind"), st.lists(st.tuples(pods, nodes), min_size=1, max_size=4)),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
    st.tuples(st.just("end"), pods),
    st.tuples(st.just("delete"), pods),
    st.tuples(st.just("time"), st.sampled_from([1, 71])),
    st.tuples(st.just("restart")),
)
histories = st.lists(_steps, min_size=3, max_size=14)


class History:
    """Carries out steps on a cluster of two nodes with one card each."""

    def __init__(self, room: Room) -> None:
        self.room = room

    async def step(self, name: str, *args: Any) -> None:
        await getattr(self, f"_{name}")(*args)
        assert_nothing_is_sold_twice(self.room.api)

    async def _make(self, number: int, units: int) -> None:
        if self.room.plane.pods.get(f"default/p{number}") is None:
            await self.room.add_pod(f"p{number}", containers=[_container(units)])

    async def _bind(self, calls: Sequence[tuple[int, str]]) -> None:
        await asyncio.gather(*(self._commit(number, node) for number, node in calls))
        await self.room.in_sync()

    async def _commit(self, number: int, node: str) -> None:
        pod = self.room.plane.pods.get(f"default/p{number}")
        try:
            if pod is not None:
                await self.room.commit(pod, node)
        except AliquotError:
            return

    async def _fault(self, name: str) -> None:
        self.room.api.script("POST", "/binding$", FAULTS[name])

    async def _end(self, number: int) -> None:
        pod = self.room.plane.pods.get(f"default/p{number}")
        if pod is not None and pod.spec.node_name:
            await self.room.report(pod, phase="Succeeded")

    async def _delete(self, number: int) -> None:
        pod = self.room.plane.pods.get(f"default/p{number}")
        if pod is not None:
            await self.room.delete_pod(pod)

    async def _time(self, seconds: float) -> None:
        await self.room.clock.move(seconds)
        await self.room.plane.transactions.settle()


def bound_pods(api: ScriptedApi) -> dict[str, dict[str, int]]:
    """Units by pod UID on each node, read from the objects alone."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for held in api.store.snapshot("pods"):
        node, phase = held.obj["spec"].get("nodeName"), held.obj["status"]["phase"]
        if node and phase not in ("Succeeded", "Failed"):
            units = int(held.obj["spec"]["containers"][0]["resources"]["limits"]["aliyun.com/gpu-mem"])
            found[node][held.obj["metadata"]["uid"]] = units
    return found


def assert_nothing_is_sold_twice(api: ScriptedApi) -> None:
    for node, units in bound_pods(api).items():
        assert sum(units.values()) <= UNITS, f"{node} is over-sold: {units}"


def assert_cpu_is_left_by_pods(room: Room, claimed: Mapping[str, Mapping[str, int]] | None = None) -> None:
    """Every pod takes a core for each of its units, from its claim on."""
    bound = bound_pods(room.api)
    for node in NODES:
        taken = {**(claimed or {}).get(node, {}), **bound[node]}
        assert room.plane.cluster.fleet.host(node).cpu == 1000 * (CORES - sum(taken.values()))


def held_by(room: Room, *states: State) -> dict[str, dict[str, int]]:
    return {
        node: units
        for node in NODES
        if (
            units := {
                uid: sum(charge.mib for charge in entry.charges.values()) // 1024
                for uid, entry in room.entries(node).items()
                if entry.state in states
            }
        )
    }


async def play(history: list[tuple[Any, ...]], after_each: Callable[[Room], Awaitable[None]] | None = None) -> None:
    """Raises AssertionError if something is sold twice, or if a new process would not rebuild the same cluster
    state."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ScriptedApi())
        client = await stack.enter_async_context(Client(Access(api.url)))
        for node in NODES:
            api.registry.create(resources.NODES, "", _node(node))
        for number in range(4):
            manifest = pod_manifest(f"p{number}", containers=[_container(4 + number)])
            api.registry.create(resources.PODS, "default", manifest)
        rooms = AsyncExitStack()
        stack.push_async_exit(rooms)
        played = History(await rooms.enter_async_context(Room(api, client, FakeClock())))
        for step in history:
            if step[0] == "restart":
                await rooms.aclose()
                played = History(await rooms.enter_async_context(Room(api, client, FakeClock())))
            else:
                await played.step(*step)
            assert held_by(played.room, State.BOUND) == bound_pods(api)
            assert_cpu_is_left_by_pods(played.room, held_by(played.room, State.CLAIMED, State.RESERVED))
            if after_each is not None:
                await after_each(played.room)
        async with Room(api, client, FakeClock()) as rebuilt:
            assert held_by(rebuilt, State.BOUND, State.CLAIMED) == held_by(played.room, State.BOUND)
            assert_cpu_is_left_by_pods(rebuilt)


def _node(name: str) -> dict[str, Any]:
    return node_manifest(name, make_cards(name, mib=(UNITS * 1024,)), allocatable={"cpu": str(CORES)})


def _container(units: int) -> dict[str, Any]:
    return container_manifest(resources={"limits": {GPU_MEM: str(units), "cpu": str(units)}})

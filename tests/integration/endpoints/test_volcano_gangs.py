"""Any gang that Volcano places in memory and then binds: no card is over-committed, and every pod gets its part."""

import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.endpoints.volcano import volcano_routes
from aliquot.kube import Access, Client
from aliquot.model import Pod
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import T4, make_cards
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.endpoints.volcano import PREFIX, Cycle, manifest_of
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room

NODES = ("n1", "n2")
CARDS = (T4, 8 * 1024)


async def bind(room: Room, pod: Pod, node: str) -> None:
    meta = pod.metadata
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"kind": "Node", "name": node},
    }
    await room.client.bind(binding, timeout=20)


async def put(cycle: Cycle, pod: Pod, chance: random.Random, *, reported: bool) -> str | None:
    """Like Volcano's allocate action: the best node that passes, chosen at random among equals."""
    manifest = manifest_of(pod)
    passed = [node for node in NODES if (await cycle.predicate(manifest, node)).fits]
    if not passed:
        return None
    scores = await cycle.scores(manifest, *passed)
    chosen = chance.choice([node for node in passed if scores[node] == max(scores.values())])
    if reported:
        assert await cycle.allocate(manifest, chosen) == "", "what passed a moment ago is kept"
    else:
        cycle.put(manifest, chosen)
    return chosen


@pytest.mark.parametrize(
    ("version", "reported"),
    [
        pytest.param("1.14.1", True, id="1.14, which reports where it places a pod"),
        pytest.param("1.8.2", False, id="1.8, which does not"),
    ],
)
@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=12), seed=st.integers(0, 2**16))
async def test_every_passed_pod_gets_its_part_when_bound_and_no_card_is_over_committed(
    version: str, reported: bool, sizes: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ScriptedApi())
        client = await stack.enter_async_context(Client(Access(api.url)))
        room = await stack.enter_async_context(Room(api, client, FakeClock()))
        for node in NODES:
            await room.add_node(make_cards(node, mib=CARDS))
        cycle = Cycle(
            await stack.enter_async_context(opened(room, volcano_routes(room.plane, "native", None, PREFIX))), version
        )
        pods = [await room.add_pod(f"p{place}", units) for place, units in enumerate(sizes)]
        tried = [(pod, await put(cycle, pod, chance, reported=reported)) for pod in pods]
        chosen = [(pod, node) for pod, node in tried if node is not None]
        for pod, node in chance.sample(chosen, len(chosen)):
            await bind(room, pod, node)
        await room.in_sync()
        await room.plane.late.look()
        sold: Counter[tuple[str, int]] = Counter()
        for pod, node in chosen:
            placement = read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT])
            assert placement.node == node
            for part in placement.slices():
                sold[node, part.index] += part.mib
        assert all(mib <= CARDS[index] for (_, index), mib in sold.items())

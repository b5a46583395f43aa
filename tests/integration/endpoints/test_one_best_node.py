"""Every endpoint that scores has one best node: that of the engine. Only an original's own policy leaves ties."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.embedded.api import resources
from aliquot.endpoints import native
from aliquot.endpoints.elastic import ElasticEndpoint
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.nvidia import NvidiaEndpoint
from aliquot.endpoints.volcano import volcano_routes
from aliquot.engine.policies import NODE_POLICIES
from aliquot.kube import Access, Client
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.volcano import manifest_of, node_info, task_info
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room

PATHS = (
    "/aliquot/prioritize",
    "/gpushare-scheduler/prioritize",
    "/scheduler/priorities",
    "/apis/metrics.nvidia.com/v1alpha1/schedule/prioritize",
    "/aliquot/vprioritize",
)
ORIGINALS = sorted(name for name, policy in NODE_POLICIES.items() if policy.leaves_ties)
OURS = sorted(NODE_POLICIES.keys() - ORIGINALS)

Held = Sequence[int]
"""GiB in use of each card of a node, all of 16 GiB."""


@asynccontextmanager
async def scoring(fleet: Sequence[Held]) -> AsyncIterator[Endpoint]:
    """All endpoints that score, on one address, over these nodes."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ScriptedApi())
        client = await stack.enter_async_context(Client(Access(api.url)))
        room = await stack.enter_async_context(Room(api, client, FakeClock()))
        for node, cards in enumerate(fleet):
            name = f"n{node}"
            shown = make_cards(name, mib=(16384,) * len(cards))
            api.registry.create(resources.NODES, "", node_manifest(name, shown))
            for card, units in enumerate(cards):
                if units:
                    index = {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": str(card)}}
                    held = pod_manifest(f"held-{node}-{card}", units, node=name, metadata=index)
                    api.registry.create(resources.PODS, "default", held)
        await room.in_sync()
        routes = {
            **native.routes(room.plane),
            **GpuShareEndpoint(room.plane).routes(),
            **ElasticEndpoint(room.plane).routes(),
            **NvidiaEndpoint(room.plane).routes(),
            **volcano_routes(room.plane, "native", None, "/aliquot"),
        }
        yield await stack.enter_async_context(opened(room, routes))


async def scores(endpoint: Endpoint, path: str, pod: Any, names: Sequence[str]) -> Mapping[str, float]:
    """The scores that the scheduler counts: a node that is left out has 0."""
    if path.endswith("vprioritize"):
        body = {"task": task_info(manifest_of(pod)), "nodes": [node_info(name) for name in names]}
        found: dict[str, float] = (await endpoint.post(path, body)).json["nodeScore"]
        return found
    answer = (await endpoint.post(path, {"Pod": manifest_of(pod), "NodeNames": names})).json
    return dict.fromkeys(names, 0) | {entry["Host"]: entry["Score"] for entry in answer}


def top(found: Mapping[str, float]) -> list[str]:
    return sorted(node for node, score in found.items() if score == max(found.values()))


fleets = st.lists(st.lists(st.sampled_from([0, 0, 4, 8, 15]), min_size=1, max_size=4), min_size=2, max_size=12)


@settings(max_examples=15)
@given(fleet=fleets, units=st.sampled_from([1, 3, 8, 16]), policy=st.sampled_from(OURS), seed=st.randoms())
async def test_the_engine_s_best_node_alone_has_the_highest_score(
    fleet: list[list[int]], units: int, policy: str, seed: Any
) -> None:
    async with scoring(fleet) as endpoint:
        room = endpoint.room
        pod = await room.add_pod("p", units, metadata={"annotations": {"aliquot.io/node-policy": policy}})
        demand = room.plane.cluster.demand_of(pod)
        assert demand is not None
        names = seed.sample([f"n{node}" for node in range(len(fleet))], seed.randint(1, len(fleet)))
        best = room.plane.cluster.judge(demand).best(names)
        for path in PATHS:
            found = await scores(endpoint, path, pod, names)
            assert top(found) == [best] if best else not any(found.values()), (path, found)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("policy", [name for name in ORIGINALS if not name.endswith("random")])
async def test_an_original_s_policy_leaves_equal_nodes_to_the_scheduler(policy: str, path: str) -> None:
    names = ["n0", "n1", "n2", "n3"]
    async with scoring([[0, 4], [0, 0], [0, 4], [0, 0]]) as endpoint:
        best: list[list[str]] = []
        for chain in (policy, f"{policy},binpack"):
            pod = await endpoint.room.add_pod(
                f"p{len(best)}", 1, metadata={"annotations": {"aliquot.io/node-policy": chain}}
            )
            best.append(top(await scores(endpoint, path, pod, names)))
    assert {"n0", "n2"} <= set(best[0]) or {"n1", "n3"} <= set(best[0])
    assert len(best[1]) == 1, "ours breaks ties behind it"

"""Properties of every endpoint's filter, for any call."""

from random import Random
from typing import Any

import msgspec
import pytest

from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.dialects import standard_dialects
from aliquot.endpoints import native
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.elastic import ElasticEndpoint
from aliquot.endpoints.endpoint import Table
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.nvidia import NvidiaEndpoint
from tests.factories import container_manifest, make_cards, node_manifest
from tests.integration.endpoints.endpoint import Endpoint, Reply
from tests.integration.endpoints.wire import (
    CASES,
    KEYS,
    cards_of_models,
    names_call,
    odd_node,
    opened,
    pod_asking,
    whole_call,
    written,
)
from tests.integration.room import Room

CALLS = 40
NODES = ["n1", "n2", "small", "mixed", "cpu", "ghost", "x.y-z"]


def admission(plane: ControlPlane, compat: Compat) -> Table:
    return AdmissionEndpoint(plane, None, compat).routes()


def gpushare(plane: ControlPlane, compat: Compat) -> Table:
    return GpuShareEndpoint(plane, None, compat).routes()


def elastic(plane: ControlPlane, compat: Compat) -> Table:
    return ElasticEndpoint(plane, None, compat).routes()


def nvidia(plane: ControlPlane, compat: Compat) -> Table:
    return NvidiaEndpoint(plane, None, compat).routes()


def our_own(plane: ControlPlane, compat: Compat) -> Table:
    return native.routes(plane, None, compat)


WITHOUT_UNRESOLVABLE = ("/scheduler/predicates", "/scheduler/filter")
"""gpu-admission and elastic-gpu-scheduler were built before kube-scheduler had that key."""

ENDPOINTS = [
    pytest.param(admission, "/scheduler/predicates", id="admission"),
    pytest.param(gpushare, "/gpushare-scheduler/filter", id="gpushare"),
    pytest.param(elastic, "/scheduler/filter", id="elastic"),
    pytest.param(nvidia, "/apis/metrics.nvidia.com/v1alpha1/schedule/filter", id="nvidia"),
    pytest.param(our_own, "/aliquot/filter", id="native"),
]


async def fill(room: Room) -> None:
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2", unhealthy=(1,)))
    await room.add_node(make_cards("small", mib=(4096,)))
    await room.add_node(cards_of_models("mixed", "Tesla T4", "NVIDIA A100-SXM4-40GB"))
    await room.add_plain_node("cpu", {})


def any_pod(random: Random) -> Any:
    """A pod that requests something in some dialect, too much, or nothing."""
    limits = {}
    for name in random.sample(sorted(resource for d in standard_dialects().values() for resource in names(d)), 2):
        if random.random() < 0.6:
            limits[name] = random.choice(["0", "1", "2", "8", "50", "100", "200", "9999", "-1", "many", "1k"])
    models = random.choice([{}, {}, {"nvidia.com/gpu.model": random.choice(["Tesla T4", "H100", ""])}])
    return pod_asking(limits, annotations=models, metadata={"uid": f"u-{random.randrange(8)}"})


def names(dialect: Any) -> list[str]:
    return [resource.name for resource in dialect.resources if "mig-" not in resource.name]


async def asked(endpoint: Endpoint, path: str, pod: Any, nodes: list[str], *, whole: bool) -> tuple[Reply, list[str]]:
    """The answer, and the names of the nodes that passed, as a scheduler reads them."""
    if not whole:
        reply = await endpoint.post(path, names_call(pod, nodes))
        assert reply.json["Nodes"] is None
        return reply, reply.json["NodeNames"]
    reply = await endpoint.send("POST", path, whole_call(pod, [odd_node(name) for name in nodes]))
    items = msgspec.json.decode(reply.body, type=dict[str, msgspec.Raw])["Nodes"]
    raws = msgspec.json.decode(items, type=dict[str, msgspec.Raw])["items"]
    passed = [bytes(raw) for raw in msgspec.json.decode(raws, type=list[msgspec.Raw] | None) or ()]
    by_bytes = {odd_node(name): name for name in nodes}
    assert set(passed) <= by_bytes.keys(), "a node was not given back as it came"
    return reply, [by_bytes[raw] for raw in passed]


@pytest.mark.parametrize("whole", [False, True], ids=["names", "whole nodes"])
@pytest.mark.parametrize("compat", [OURS, Compat(True, True, True, True)], ids=["ours", "as the original"])
@pytest.mark.parametrize(("routes", "path"), ENDPOINTS)
async def test_passed_and_refused_nodes_are_the_nodes_of_the_call_in_order(
    room: Room, routes: Any, path: str, compat: Compat, whole: bool
) -> None:
    random = Random(f"{path} {compat} {whole}")
    await fill(room)
    outcomes = set()
    async with opened(room, routes(room.plane, compat)) as endpoint:
        for _ in range(CALLS):
            nodes = random.sample(NODES, random.randrange(len(NODES) + 1))
            reply, passed = await asked(endpoint, path, any_pod(random), nodes, whole=whole)
            answer = reply.json
            assert (reply.status, answer["Error"]) == (200, "")
            unresolvable = answer.get("FailedAndUnresolvableNodes")
            keys = [key for key in KEYS if unresolvable or key != "FailedAndUnresolvableNodes"]
            assert list(answer) == (keys if path in WITHOUT_UNRESOLVABLE else KEYS)
            assert passed == [name for name in nodes if name in passed]
            if answer["FailedNodes"] is not None:
                assert answer["FailedNodes"].keys() == set(nodes) - set(passed)
                assert all(answer["FailedNodes"].values()), "every refusal has a reason"
            if not compat.maps:
                assert (unresolvable or {}) == (answer["FailedNodes"] or {})
            outcomes.add((bool(passed), len(passed) == len(nodes)))
    assert len(outcomes) >= 3, "all pass, some pass, none passes"


@pytest.mark.parametrize(("routes", "path"), ENDPOINTS)
async def test_a_pod_without_gpu_passes_everywhere_and_gets_its_nodes_back_unchanged(
    room: Room, routes: Any, path: str
) -> None:
    random = Random(path)
    await fill(room)
    async with opened(room, routes(room.plane, OURS)) as endpoint:
        for _ in range(CALLS // 4):
            nodes = random.sample(NODES, random.randrange(1, len(NODES) + 1))
            sent = whole_call(pod_asking({}), [odd_node(name) for name in nodes], metadata=b'{ "resourceVersion":"7" }')
            whole = await endpoint.send("POST", path, sent)
            node_list = sent[sent.index(b'"Nodes":') : sent.index(b',"NodeNames"')]
            assert whole.body.startswith(b"{" + node_list)
            assert not whole.json["FailedNodes"]
            by_name = await endpoint.post(path, names_call(pod_asking({}), nodes))
            assert by_name.json["NodeNames"] == nodes
            assert not by_name.json["FailedNodes"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize("whole", [False, True], ids=["names", "whole nodes"])
@pytest.mark.parametrize(("routes", "path"), ENDPOINTS)
async def test_keys_match_in_any_case_at_every_depth(
    room: Room, routes: Any, path: str, whole: bool, where: str, case: Any
) -> None:
    await fill(room)
    pod = pod_asking({"aliyun.com/gpu-mem": "9"})
    if where == "initContainers":
        pod["spec"] |= {"initContainers": pod["spec"]["containers"], "containers": [container_manifest(gpu_mem=None)]}
    nodes = ["small", "n1", "cpu"]
    if whole:
        call = {"Pod": pod, "Nodes": {"metadata": {}, "items": [node_manifest(name) for name in nodes]}}
    else:
        call = names_call(pod, nodes)
    async with opened(room, routes(room.plane, OURS)) as endpoint:
        answer = (await endpoint.post(path, written(call, case))).json
    assert (answer["Error"], answer["FailedNodes"].keys()) == ("", {"small", "cpu"})

"""nvidia-gpu-scheduler's routes for kube-scheduler: cards by model."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from aliquot.compat import Compat
from aliquot.endpoints.nvidia import NvidiaEndpoint
from tests.factories import make_cards
from tests.integration.endpoints.endpoint import Endpoint
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

PREFIX = "/apis/metrics.nvidia.com/v1alpha1/schedule"
FILTER, PRIORITIZE, PREEMPT = (f"{PREFIX}/{verb}" for verb in ("filter", "prioritize", "preempt"))
GPU, MODEL = "nvidia.com/gpu", "nvidia.com/gpu.model"
NODES = ["t4", "mixed", "a100", "cpu"]


@pytest.fixture
async def nvidia(room: Room) -> AsyncIterator[Endpoint]:
    """Four T4; one T4 and two A100; four A100; a node without GPU."""
    await fill(room)
    async with opened(room, NvidiaEndpoint(room.plane).routes()) as endpoint:
        yield endpoint


@pytest.fixture
async def original(room: Room) -> AsyncIterator[Endpoint]:
    """The same nodes behind an endpoint that returns every node, as the original's."""
    await fill(room)
    async with opened(room, NvidiaEndpoint(room.plane, None, Compat(every_node=True)).routes()) as endpoint:
        yield endpoint


async def fill(room: Room) -> None:
    await room.add_node(cards_of_models("t4", *["Tesla T4"] * 4))
    await room.add_node(cards_of_models("mixed", "Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"))
    await room.add_node(cards_of_models("a100", *["NVIDIA A100-SXM4-40GB"] * 4))
    await room.add_plain_node("cpu", {})


def wanting(count: int, model: str = "", **fields: Any) -> Any:
    return pod_asking({GPU: str(count)}, annotations={MODEL: model} if model else {}, **fields)


MODELS = [
    pytest.param(1, "Tesla T4", ["t4", "mixed"], id="its whole name"),
    pytest.param(1, " tesla t4 ", ["t4", "mixed"], id="any case, with spaces"),
    pytest.param(2, "Tesla T4", ["t4"], id="two of a model"),
    pytest.param(3, "NVIDIA A100-SXM4-40GB", ["a100"], id="more than a mixed node has"),
    pytest.param(1, "", ["t4", "mixed", "a100"], id="no annotation: any model"),
    pytest.param(5, "", [], id="no annotation, more than any node has"),
    pytest.param(1, "H100", [], id="an unknown model"),
    pytest.param(1, "H100,Tesla T4", ["t4", "mixed"], id="one of several models"),
]


@pytest.mark.parametrize(("count", "model", "passed"), MODELS)
async def test_nodes_pass_if_they_have_enough_cards_of_the_model(
    original: Endpoint, count: int, model: str, passed: list[str]
) -> None:
    reply = await original.post(FILTER, names_call(wanting(count, model), NODES))
    assert (reply.status, list(reply.json)) == (200, KEYS)
    assert (reply.json["NodeNames"], reply.json["Error"]) == (passed, "")
    assert reply.json["FailedNodes"].keys() == set(NODES) - set(passed)
    assert reply.json["FailedNodes"] == reply.json["FailedAndUnresolvableNodes"]


@pytest.mark.parametrize(
    ("count", "model", "best"),
    [
        pytest.param(1, "Tesla T4", "t4", id="four free cards of the model against one"),
        pytest.param(1, "A100", "a100", id="four against two"),
        pytest.param(4, "", "a100", id="no annotation: the first of the equal ones by name"),
    ],
)
async def test_only_the_node_with_most_free_cards_of_the_model_passes(
    nvidia: Endpoint, count: int, model: str, best: str
) -> None:
    reply = await nvidia.post(FILTER, names_call(wanting(count, model), NODES))
    assert reply.json["NodeNames"] == [best]
    assert reply.json["FailedNodes"].keys() == set(NODES) - {best}
    assert all(reply.json["FailedNodes"].values())
    assert reply.json["FailedNodes"] == reply.json["FailedAndUnresolvableNodes"]


@pytest.mark.parametrize(
    ("count", "model", "passed"),
    [
        pytest.param(1, "A100", [], id="a model that the label does not name"),
        pytest.param(4, "Tesla T4", ["labelled"], id="as many as the node has cards"),
    ],
)
async def test_all_cards_of_a_node_without_our_agent_count_as_the_model_of_its_label(
    nvidia: Endpoint, count: int, model: str, passed: list[str]
) -> None:
    """Whatever the node really has: docs/coming-from/nvidia-gpu-scheduler.md says what to do about several models."""
    metadata = {"name": "labelled", "labels": {"nvidia.com/gpu.product": "Tesla-T4"}}
    await nvidia.room.add_plain_node("labelled", {GPU: "4"}, metadata=metadata)
    reply = await nvidia.post(FILTER, names_call(wanting(count, model), ["labelled"]))
    assert reply.json["NodeNames"] == passed


EXACT: list[Any] = [
    pytest.param(
        msgspec.json.encode(names_call(wanting(1, "Tesla T4"), ["mixed", "a100"])),
        b'{"Nodes":null,"NodeNames":["mixed"],"FailedNodes":{"a100":"no GPU of the requested model"},'
        b'"FailedAndUnresolvableNodes":{"a100":"no GPU of the requested model"},"Error":""}\n',
        id="names",
    ),
    pytest.param(
        whole_call(wanting(1, "Tesla T4"), [odd_node("a100"), odd_node("t4")]),
        b'{"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null,'
        b'"FailedNodes":{"a100":"no GPU of the requested model"},'
        b'"FailedAndUnresolvableNodes":{"a100":"no GPU of the requested model"},"Error":""}\n' % odd_node("t4"),
        id="whole nodes, which crash the original",
    ),
    pytest.param(
        msgspec.json.encode(names_call(pod_asking({}), NODES)),
        b'{"Nodes":null,"NodeNames":["t4","mixed","a100","cpu"],"FailedNodes":null,"FailedAndUnresolvableNodes":null,'
        b'"Error":""}\n',
        id="no GPU",
    ),
    pytest.param(
        b"{",
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,'
        b'"Error":"cannot decode the body: Input data was truncated"}\n',
        id="half a body",
    ),
]


@pytest.mark.parametrize(("body", "answer"), EXACT)
async def test_filter_answers_byte_for_byte(nvidia: Endpoint, body: bytes, answer: bytes) -> None:
    reply = await nvidia.send("POST", FILTER, body)
    assert (reply.status, reply.content_type, reply.body) == (200, "text/plain", answer)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param(PRIORITIZE, b'[{"Host":"t4","Score":10}]\n', id="prioritize"),
        pytest.param(PREEMPT, b'{"NodeNameToMetaVictims":{}}\n', id="preempt"),
    ],
)
async def test_the_other_verbs_answer_as_text_with_a_newline_too(nvidia: Endpoint, path: str, answer: bytes) -> None:
    reply = await nvidia.post(path, names_call(wanting(1, "Tesla T4"), ["t4"]))
    assert (reply.status, reply.content_type, reply.body) == (200, "text/plain", answer)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("path", [FILTER, PRIORITIZE])
async def test_keys_are_read_in_any_case(nvidia: Endpoint, path: str, case: Callable[[str], str]) -> None:
    call = names_call(wanting(1, "Tesla T4"), NODES)
    assert (await nvidia.post(path, written(call, case))).body == (await nvidia.post(path, call)).body


@pytest.mark.parametrize(
    ("model", "scores"),
    [
        pytest.param("Tesla T4", {"t4": 10, "mixed": 0, "a100": 0, "cpu": 0}, id="T4"),
        pytest.param("NVIDIA A100-SXM4-40GB", {"t4": 0, "mixed": 0, "a100": 10, "cpu": 0}, id="A100"),
        pytest.param("", {"t4": 10, "mixed": 10, "a100": 10, "cpu": 0}, id="no model: equal scores"),
    ],
)
async def test_the_node_with_most_free_cards_of_the_model_is_best(
    nvidia: Endpoint, model: str, scores: dict[str, int]
) -> None:
    reply = await nvidia.post(PRIORITIZE, names_call(wanting(1, model), NODES))
    assert reply.json == [{"Host": node, "Score": score} for node, score in scores.items()]


async def test_a_pod_s_own_reservation_does_not_count_against_it(nvidia: Endpoint) -> None:
    """As a scheduler treats a nominated node: it filters that node alone, then asks for scores."""
    pod, other = await nvidia.room.put_pod(wanting(1, "Tesla T4")), wanting(1, "Tesla T4", metadata={"uid": "u-2"})
    uid = pod["metadata"]["uid"]
    assert (await nvidia.post(FILTER, names_call(pod, ["mixed"]))).json["NodeNames"] == ["mixed"]
    ledger = nvidia.room.plane.cluster.ledger
    held = ledger.entry(uid, "mixed")
    for asking, score in ((pod, 10), (other, 0)):
        reply = await nvidia.post(PRIORITIZE, names_call(asking, ["mixed"]))
        assert reply.json == [{"Host": "mixed", "Score": score}]
    reply = await nvidia.post(PRIORITIZE, names_call(pod, ["t4", "mixed"]))
    assert [entry["Score"] for entry in reply.json] == [10, 0], "four free cards against its own"
    assert ledger.entry(uid, "mixed") == held is not None, "it is still kept"


async def test_scores_are_spread_over_0_to_10(nvidia: Endpoint) -> None:
    """One, three and four cards free."""
    await nvidia.room.add_node(cards_of_models("t4-too", *["Tesla T4"] * 3))
    reply = await nvidia.post(PRIORITIZE, names_call(wanting(1, "Tesla T4"), ["mixed", "t4-too", "t4"]))
    assert [entry["Score"] for entry in reply.json] == [0, 6, 10]


def preempting(pod: Any, victims: dict[str, list[str]], *, whole: bool) -> dict[str, Any]:
    """Victims as a scheduler sends them with nodeCacheCapable, and without."""
    pods: Any = (lambda uid: {"metadata": {"name": uid, "uid": uid}}) if whole else (lambda uid: {"UID": uid})
    by_node = {node: {"Pods": [pods(uid) for uid in uids], "NumPDBViolations": 1} for node, uids in victims.items()}
    both = {"NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    return {"Pod": pod, **both, "NodeNameToVictims" if whole else "NodeNameToMetaVictims": by_node}


@pytest.fixture
async def full(room: Room) -> AsyncIterator[Endpoint]:
    """Two nodes with one card each, both held by pods of low priority."""
    for node in ("n1", "n2"):
        await room.add_node(make_cards(node, mib=(15360,)))
        await room.add_pod(f"on-{node}", containers=wanting(1)["spec"]["containers"], node=node, priority=1)
    async with opened(room, NvidiaEndpoint(room.plane).routes()) as endpoint:
        yield endpoint


def uid_on(endpoint: Endpoint, node: str) -> str:
    pod = endpoint.room.plane.pods.get(f"default/on-{node}")
    assert pod is not None
    return pod.metadata.uid


@pytest.mark.parametrize("whole", [False, True], ids=["UIDs", "whole pods"])
@pytest.mark.parametrize("case", CASES)
async def test_victims_whose_cards_help_stay_and_are_answered_as_uids(
    full: Endpoint, case: Callable[[str], str], whole: bool
) -> None:
    victims = {"n1": [uid_on(full, "n1")]}
    call = preempting(wanting(1, "Tesla T4", priority=100), victims, whole=whole)
    reply = await full.post(PREEMPT, written(call, case))
    kept = {"n1": {"Pods": [{"UID": victims["n1"][0]}], "NumPDBViolations": 1}}
    assert reply.body == msgspec.json.encode({"NodeNameToMetaVictims": kept}) + b"\n"


async def test_a_node_whose_victims_do_not_help_is_dropped(full: Endpoint) -> None:
    victims = {"n1": [uid_on(full, "n1")], "n2": [uid_on(full, "n2")]}
    for pod in (wanting(1, "H100", priority=100), wanting(2, "Tesla T4", priority=100)):
        reply = await full.post(PREEMPT, preempting(pod, victims, whole=False))
        assert reply.json == {"NodeNameToMetaVictims": {}}


async def test_victims_of_a_pod_without_gpu_stay_unchanged(full: Endpoint) -> None:
    victims = {"n1": ["a", "b"], "cpu": ["c"]}
    reply = await full.post(PREEMPT, preempting(pod_asking({}), victims, whole=False))
    assert reply.json["NodeNameToMetaVictims"] == {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1} for node, uids in victims.items()
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/", id="the root"),
        pytest.param("POST", f"{PREFIX}/bind", id="an unknown verb"),
        pytest.param("GET", "/version", id="no version"),
    ],
)
async def test_unknown_paths_get_the_original_s_json(nvidia: Endpoint, method: str, path: str) -> None:
    reply = await nvidia.send(method, path)
    assert (reply.status, reply.body) == (404, b'{"code":404,"msg":"api not found"}\n')
    assert reply.content_type == "application/json"


async def test_with_compat_maps_refused_nodes_are_not_named(room: Room) -> None:
    await fill(room)
    async with opened(room, NvidiaEndpoint(room.plane, None, Compat(maps=True)).routes()) as endpoint:
        reply = await endpoint.post(FILTER, names_call(wanting(1, "Tesla T4"), NODES))
    assert reply.body == (
        b'{"Nodes":null,"NodeNames":["t4"],"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":""}\n'
    )


async def test_every_node_comes_back_without_a_reservation(original: Endpoint) -> None:
    """Which of two it will be, only the scheduler knows."""
    pod = await original.room.put_pod(wanting(1, "Tesla T4"))
    ledger, uid = original.room.plane.cluster.ledger, pod["metadata"]["uid"]
    for nodes, reserved in ((["mixed", "a100"], {"mixed"}), (["mixed", "t4"], set())):
        reply = await original.post(FILTER, names_call(pod, nodes))
        assert reply.json["NodeNames"] == [node for node in nodes if node != "a100"]
        assert ledger.nodes_of(uid) == reserved

"""A real kube-scheduler with the shipped configurations asks `aliquot server` through each system's routes. Nodes and
pods are objects of a real API server; nothing runs on them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.model import NodeGpus
from tests.checker import unplaced
from tests.factories import make_cards, make_gpu
from tests.real.objects import asking, gpu_node
from tests.real.recorder import Call, Recorder, recording
from tests.real.scheduler import DEPLOY, Scheduling, pointed_at
from tests.real.serving import Serving, serving
from tests.real.watching import following
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

EXAMPLES = Path(__file__).parents[2] / "examples"
GPU_MEM = "aliyun.com/gpu-mem"
PLACEMENT = "aliquot.io/placement"
WATCHED = 4.0
"""Seconds in which a scheduler that spins asks hundreds of times."""
FEW = 20


@dataclass(frozen=True)
class System:
    """Where a system's configuration is, by which endpoint it comes in, and what its users' pods carry afterwards."""

    folder: str
    endpoint: str
    dialect: str
    verbs: frozenset[str]
    filter_verb: str = "filter"

    @property
    def config(self) -> dict[str, Any]:
        read: dict[str, Any] = yaml.safe_load((DEPLOY / self.folder / "kube-scheduler.yaml").read_text())
        return read


ADMISSION = System("gpu-admission", "admission", "tencent", frozenset(("predicates",)), "predicates")
NVIDIA = System("nvidia-gpu-scheduler", "nvidia", "nvidia", frozenset(("filter", "prioritize", "preempt")))
GPUSHARE = System("gpushare", "gpushare", "gpushare", frozenset(("filter", "prioritize", "bind")))
ELASTIC = System("elastic-gpu", "elastic", "elastic", frozenset(("filter", "priorities", "bind")))
NATIVE = frozenset(("filter", "prioritize", "bind", "preempt"))
NATIVE_GPUSHARE = System("native", "native", "gpushare", NATIVE)
SYSTEMS = (
    ADMISSION,
    NVIDIA,
    GPUSHARE,
    ELASTIC,
    *(System("native", "native", dialect, NATIVE) for dialect in ("aliquot", "hami", "keti")),
)


def _id(system: System) -> str:
    return f"{system.folder}-{system.dialect}"


@contextmanager
def scheduled(cluster: Scheduling, system: System, **changes: Any) -> Iterator[tuple[Serving, Recorder]]:
    """The server, and kube-scheduler with the system's configuration pointed at it."""
    with serving(cluster) as aliquot, recording(aliquot.url(system.endpoint)) as recorder:
        cluster.schedule(pointed_at({**system.config, **changes}, recorder.url))
        yield aliquot, recorder


def example(dialect: str) -> dict[str, Any]:
    """The pod that the system's own guide has its users write, or the first one of its Deployment or Job."""
    written = yaml.safe_load((EXAMPLES / f"{dialect}.yaml").read_text())
    if written["kind"] == "Pod":
        return dict(written)
    template = written["spec"]["template"]
    meta = {**written["metadata"], **template.get("metadata", {}), "name": f"{written['metadata']['name']}-0"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


# -- the systems' own pods


EXPECTED: dict[str, dict[str, Any]] = {
    "tencent": {
        "tencent.com/predicate-gpu-idx-0": "3",
        "tencent.com/predicate-node": "n1",
        "tencent.com/predicate-time": r"\d+",
        "tencent.com/gpu-assigned": "false",
    },
    "nvidia": {},
    "gpushare": {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    },
    "elastic": {"elastic-gpu/assume": "true", "elastic-gpu/container-cuda": "0"},
    "aliquot": {},
    "hami": {"hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating"},
    "keti": {"UUID": "GPU-n1-0"},
}
PARTS = {
    "tencent": (50, 7680),
    "nvidia": (100, 15360),
    "gpushare": (0, 3072),
    "elastic": (20, 3072),
    "aliquot": (25, 4096),
    "hami": (30, 3000),
    "keti": (10, 1536),
}
"""Percent of the cores and MiB of the memory of the first card."""


@pytest.mark.parametrize("system", SYSTEMS, ids=_id)
def test_a_systems_own_pod_is_scheduled_with_its_own_annotations(scheduling: Scheduling, system: System) -> None:
    pod = example(system.dialect)
    name = pod["metadata"]["name"]
    scheduling.create(gpu_node("n1", system.dialect))
    scheduling.ensure_namespace(pod["metadata"]["namespace"])
    with scheduled(scheduling, system) as (_, recorder):
        scheduling.create(pod)
        scheduling.wait_bound(name)
        placed = scheduling.wait_annotated(f"{pod['metadata']['namespace']}/{name}", PLACEMENT)
    annotations = placed["metadata"]["annotations"]
    record = json.loads(annotations[PLACEMENT])
    ((part,),) = record["containers"].values()
    assert (record["node"], record["dialect"], part["uuid"]) == ("n1", system.dialect, "GPU-n1-0")
    assert (part["cores"], part["mib"]) == PARTS[system.dialect]
    for key, value in EXPECTED[system.dialect].items():
        assert key in annotations, f"{key} is not among {sorted(annotations)}"
        assert annotations[key] == value or (value == r"\d+" and annotations[key].isdigit())
    assert recorder.count(system.filter_verb, name) == 1
    assert recorder.count("bind", name) == ("bind" in system.verbs)


# -- each verb has an effect


def _vcuda(core: int) -> dict[str, object]:
    return {"tencent.com/vcuda-core": core, "tencent.com/vcuda-memory": 10}


PERCENT = "elastic-gpu/gpu-percent"
CROWDED = [
    pytest.param(GPUSHARE, {GPU_MEM: 8}, {GPU_MEM: 10}, id="gpushare"),
    pytest.param(NATIVE_GPUSHARE, {GPU_MEM: 8}, {GPU_MEM: 10}, id="native"),
    pytest.param(ELASTIC, {PERCENT: 60}, {PERCENT: 50}, id="elastic"),
    pytest.param(ADMISSION, _vcuda(60), _vcuda(50), id="gpu-admission"),
]
"""What each of two pods asks, so that they are on two cards, and what fits into all that is left, but on no card."""


@pytest.mark.parametrize(("system", "held", "wanted"), CROWDED)
def test_filter_keeps_a_pod_from_a_node_whose_cards_are_all_too_full(
    scheduling: Scheduling, system: System, held: dict[str, object], wanted: dict[str, object]
) -> None:
    """In-tree counting lets the pod onto n1, and alone kube-scheduler would take it: the CPUs of n2 are busier."""
    scheduling.create(gpu_node("n1", system.dialect))
    old, new = ("old-0", "old-1"), ("new-0", "new-1")
    with scheduled(scheduling, system) as (_, recorder):
        scheduling.create(*(asking(name, held) for name in old))
        for name in old:
            scheduling.wait_annotated(name, PLACEMENT)
        scheduling.create(gpu_node("n2", system.dialect), asking("busy", {"cpu": 16}, nodeName="n2"))
        for name in new:
            scheduling.create(asking(name, wanted))
            scheduling.wait_annotated(name, PLACEMENT)
        where = scheduling.bound()
        observed = scheduling.observe()
    assert {where[name] for name in new} == {"n2"}
    assert {_placement(observed.pods, name)["node"] for name in new} == {"n2"}
    _only_n1_was_refused(recorder.about(system.filter_verb, "new-0")[-1])
    if system.dialect == "gpushare":  # whose words the checker reads
        assert unplaced(observed, [f"default/{name}" for name in (*old, *new)]) == []


def test_filter_keeps_a_pod_from_a_node_whose_cards_are_of_another_model(scheduling: Scheduling) -> None:
    """Both nodes count two free cards, and the CPUs of n2, which has the model, are the busier ones."""
    a10 = tuple(make_gpu(index, "n2", model="A10", mib=23028) for index in range(2))
    scheduling.create(gpu_node("n1", "nvidia"), gpu_node("n2", "nvidia", NodeGpus("n2", a10, unit_mib=1024)))
    with scheduled(scheduling, NVIDIA) as (_, recorder):
        scheduling.create(asking("busy", {"cpu": 16}, nodeName="n2"))
        scheduling.create(asking("new", {"nvidia.com/gpu": 1}, annotations={"nvidia.com/gpu.model": "A10"}))
        scheduling.wait_annotated("new", PLACEMENT)
        where = scheduling.bound()
    assert where["new"] == "n2"
    _only_n1_was_refused(recorder.about("filter", "new")[0])


def _only_n1_was_refused(call: Call) -> None:
    assert set(call.asked["NodeNames"]) == {"n1", "n2"}
    assert call.answer["NodeNames"] == ["n2"]
    assert call.answer["FailedAndUnresolvableNodes"].keys() == {"n1"}


SCORED = [
    pytest.param(ELASTIC, {PERCENT: 20}, "priorities", "n1", id="elastic"),
    pytest.param(NVIDIA, {"nvidia.com/gpu": 1}, "filter", "n2", id="nvidia"),
    pytest.param(GPUSHARE, {GPU_MEM: 3}, "prioritize", "n1", id="gpushare"),
    pytest.param(NATIVE_GPUSHARE, {GPU_MEM: 3}, "prioritize", "n1", id="native"),
]


@pytest.mark.parametrize(("system", "limits", "verb", "best"), SCORED)
def test_our_choice_decides_between_two_nodes_that_fit(
    scheduling: Scheduling, system: System, limits: dict[str, object], verb: str, best: str
) -> None:
    """One card of n1 is used. Most systems fill it up first; nvidia-gpu-scheduler wants the most free cards, and its
    filter leaves that node alone. In each case the CPUs of our node are the busier ones: without us, kube-scheduler
    takes the other."""
    scheduling.create(*(gpu_node(name, system.dialect, _eight(name), node=name) for name in ("n1", "n2")))
    model = {"nvidia.com/gpu.model": "Tesla T4"}
    with scheduled(scheduling, system) as (_, recorder):
        scheduling.create(asking("first", limits, nodeSelector={"node": "n1"}))
        scheduling.wait_bound("first")
        scheduling.wait_annotated("first", PLACEMENT)
        scheduling.create(asking("busy", {"cpu": 16}, nodeName=best))
        scheduling.wait_bound("busy")
        scheduling.create(asking("new", limits, annotations=model))
        where = scheduling.wait_bound("new")
    (call,) = recorder.about(verb, "new")
    if verb == "filter":
        assert call.answer["NodeNames"] == [best]
    else:
        assert {each["Host"]: each["Score"] for each in call.answer if each["Score"]} == {best: 10}
    assert where["new"] == best


def _eight(node: str) -> NodeGpus:
    return make_cards(node, mib=(15360,) * 8)


@pytest.mark.parametrize("system", [GPUSHARE, ELASTIC, System("native", "native", "aliquot", NATIVE)], ids=_id)
def test_bind_writes_node_and_card_at_once(scheduling: Scheduling, system: System) -> None:
    """No version of the pod that has a node is without its placement."""
    versions: list[dict[str, Any]] = []
    scheduling.create(gpu_node("n1", system.dialect))
    with scheduled(scheduling, system), following(scheduling.api.url, "/api/v1/pods", versions.append):
        scheduling.create(example(system.dialect))
        wait_for("the pod to be bound", lambda: versions and "nodeName" in versions[-1]["spec"], seconds=30)
    bound = [seen for seen in versions if "nodeName" in seen["spec"]]
    assert all(PLACEMENT in seen["metadata"].get("annotations", {}) for seen in bound)


# -- preemption


ON_CARD = "nvidia.com/use-gpuuuid"
EQUAL = {"a-8": 0, "b-8": 0, "c-4": 0}
CARD_1_FIRST = {"a-8": 20, "b-8": 10, "c-4": 15}


@pytest.mark.parametrize("priorities", [pytest.param(EQUAL, id="equal"), pytest.param(CARD_1_FIRST, id="in-order")])
def test_preemption_frees_one_whole_card_and_no_more(scheduling: Scheduling, priorities: dict[str, int]) -> None:
    """Two cards of 15 units with 8 on the first, 8 and 4 on the second; 15 are wanted. In-tree counting names one
    victim, since without one of 8 there are 15 of 30 free; only we know whether they are on one card."""
    cards = {"a-8": 0, "b-8": 1, "c-4": 1}
    scheduling.create(gpu_node("n1", "gpushare"))
    scheduling.ensure_priority("preemptor", 1000)
    for value in set(priorities.values()):
        scheduling.ensure_priority(f"low-{value}", value)
    with scheduled(scheduling, NATIVE_GPUSHARE) as (_, recorder):
        for name, card in cards.items():
            annotations = {ON_CARD: f"GPU-n1-{card}"}
            size = int(name[-1])
            low = f"low-{priorities[name]}"
            scheduling.create(asking(name, {GPU_MEM: size}, annotations=annotations, priorityClassName=low))
            scheduling.wait_bound(name)
        uids = _names_by_uid(scheduling)
        scheduling.create(asking("preemptor", {GPU_MEM: 15}, priorityClassName="preemptor"))
        scheduling.wait_bound("preemptor", seconds=60)
        left = set(scheduling.bound())
        observed = scheduling.observe()
    call = recorder.about("preempt", "preemptor")[0]
    proposed, agreed = _victims(call.asked, uids), _victims(call.answer, uids)
    assert len(proposed) == 1
    assert proposed <= agreed
    assert cards.keys() - left == agreed, "who was named is gone, and nobody else"
    ((part,),) = _placement(observed.pods, "preemptor")["containers"].values()
    assert agreed == {name for name, card in cards.items() if card == part["index"]}, "one card, all of it"
    assert unplaced(observed, [f"default/{name}" for name in left]) == []
    if priorities is CARD_1_FIRST:
        assert agreed == {"b-8", "c-4"}
    assert recorder.count("filter", "preemptor") < FEW


def test_preemption_by_model_takes_the_card_that_is_wanted(scheduling: Scheduling) -> None:
    """In-tree counting names the least important pod, whatever its card; the A10 is another one's. A pod that
    kube-scheduler has chosen stays a victim, and the third one stays where it is."""
    mixed = (make_gpu(0, "n1"), make_gpu(1, "n1", model="A10", mib=23028), make_gpu(2, "n1"))
    scheduling.create(gpu_node("n1", "nvidia", NodeGpus("n1", mixed, unit_mib=1024)))
    for name, value in {"preemptor": 1000, "low-5": 5, "low-10": 10, "low-20": 20}.items():
        scheduling.ensure_priority(name, value)
    holders = {"on-t4": ("Tesla T4", "low-5"), "on-a10": ("A10", "low-10"), "stays": ("Tesla T4", "low-20")}
    with scheduled(scheduling, NVIDIA) as (_, recorder):
        for name, (model, low) in holders.items():
            wish = {"nvidia.com/gpu.model": model}
            scheduling.create(asking(name, {"nvidia.com/gpu": 1}, annotations=wish, priorityClassName=low))
            scheduling.wait_bound(name)
            scheduling.wait_annotated(name, PLACEMENT)
        uids = _names_by_uid(scheduling)
        wish = {"nvidia.com/gpu.model": "A10"}
        scheduling.create(asking("new", {"nvidia.com/gpu": 1}, annotations=wish, priorityClassName="preemptor"))
        scheduling.wait_bound("new", seconds=60)
        scheduling.wait_annotated("new", PLACEMENT)
        pods = scheduling.pods()
    call = recorder.about("preempt", "new")[0]
    assert _victims(call.asked, uids) == {"on-t4"}
    assert _victims(call.answer, uids) == {"on-t4", "on-a10"}
    assert {pod["metadata"]["name"] for pod in pods} == {"stays", "new"}, "who was named is gone, and nobody else"
    ((part,),) = _placement(pods, "new")["containers"].values()
    assert part["uuid"] == "GPU-n1-1"
    assert recorder.count("filter", "new") < FEW


@pytest.mark.parametrize(
    ("allowed", "emptied"),
    [pytest.param(0, "n2", id="protected"), pytest.param(1, "n1", id="allowed to end")],
)
def test_preemption_avoids_the_node_where_an_added_victim_is_protected(
    scheduling: Scheduling, allowed: int, emptied: str
) -> None:
    """In-tree counting names the pod of 8 on each of two nodes, and no violation; only we know that the one of 4 beside
    it must go, too. That one is less important on n1, which kube-scheduler takes unless a budget protects it there."""
    scheduling.create(*(gpu_node(node, "gpushare") for node in ("n1", "n2")))
    for name, value in {"preemptor": 1000, "low-10": 10, "low-15": 15, "low-16": 16}.items():
        scheduling.ensure_priority(name, value)
    held = {"kept-8": (0, "preemptor"), "first-8": (1, "low-10")}
    with budget(scheduling, {"app": "n1-4"}, allowed), scheduled(scheduling, NATIVE_GPUSHARE) as (_, recorder):
        for node, added in {"n1": "low-15", "n2": "low-16"}.items():
            for pod, (card, priority) in {**held, "added-4": (1, added)}.items():
                name, on_card = f"{node}-{pod}", {ON_CARD: f"GPU-{node}-{card}"}
                where = {"kubernetes.io/hostname": node}
                scheduling.create(
                    asking(
                        name,
                        {GPU_MEM: int(pod[-1])},
                        labels={"app": f"{node}-{pod[-1]}"},
                        annotations=on_card,
                        nodeSelector=where,
                        priorityClassName=priority,
                    )
                )
                scheduling.wait_bound(name)
        uids = _names_by_uid(scheduling)
        scheduling.create(asking("preemptor", {GPU_MEM: 15}, priorityClassName="preemptor"))
        bound = scheduling.wait_bound("preemptor", seconds=60)
    call = recorder.about("preempt", "preemptor")[0]
    asked, answered = _by_node(call.asked, uids), _by_node(call.answer, uids)
    assert asked == {node: ({f"{node}-first-8"}, 0) for node in ("n1", "n2")}
    assert answered == {
        "n1": ({"n1-first-8", "n1-added-4"}, 1 - allowed),
        "n2": ({"n2-first-8", "n2-added-4"}, 0),
    }
    assert bound["preemptor"] == emptied
    gone = set(uids.values()) - bound.keys()
    assert gone == {f"{emptied}-first-8", f"{emptied}-added-4"}, "who was named is gone, and nobody else"


@contextmanager
def budget(cluster: Scheduling, labels: dict[str, str], allowed: int) -> Iterator[None]:
    """A disruption budget, with a status as its controller would write it: there is none in this cluster."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"selector": {"matchLabels": labels}, "maxUnavailable": allowed}
    counts = {"currentHealthy": 1, "desiredHealthy": 1 - allowed, "expectedPods": 1, "disruptionsAllowed": allowed}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"}, "spec": spec}
    cluster.ask("POST", path, body)
    merge = "application/merge-patch+json"
    cluster.ask("PATCH", f"{path}/budget/status", {"status": counts}, content=merge)
    try:
        yield
    finally:
        cluster.ask("DELETE", f"{path}/budget")


@pytest.mark.parametrize("system", [GPUSHARE, ADMISSION, NATIVE_GPUSHARE], ids=_id)
def test_a_refused_pod_of_high_priority_causes_no_hot_loop(scheduling: Scheduling, system: System) -> None:
    """Thirty nodes with pods of lower priority, and no card that could ever take the new one."""
    nodes = [f"n{number}" for number in range(30)]
    scheduling.create(*(gpu_node(node, "gpushare") for node in nodes))
    scheduling.ensure_priority("preemptor", 1000)
    managed = [{"name": GPU_MEM}]
    extenders = [{**extender, "managedResources": managed} for extender in system.config["extenders"]]
    names = [f"low-{node}" for node in nodes]
    with scheduled(scheduling, system, extenders=extenders) as (_, recorder):
        for node, name in zip(nodes, names, strict=True):
            scheduling.create(asking(name, {GPU_MEM: 2}, nodeSelector={"kubernetes.io/hostname": node}))
        for name in names:
            scheduling.wait_annotated(name, PLACEMENT, seconds=90)  # each of these writes wakes whoever waits
        scheduling.create(asking("large", {GPU_MEM: 16}, priorityClassName="preemptor"))
        scheduling.wait_refused("large", "Insufficient GPU Memory in one device")
        before = recorder.count(system.filter_verb, "large")
        time.sleep(WATCHED)  # there is nothing to wait for: what is shown is that nothing happens
        after = recorder.count(system.filter_verb, "large")
    assert after < FEW
    assert after - before <= 2


# -- kills


def _with_short_back_off(config: dict[str, Any]) -> dict[str, Any]:
    """A pod that met an error is tried again after a second, not after ten."""
    return {**config, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}


BEFORE_THE_ANSWER = frozenset(("after-claim", "after-binding-sent"))
"""Whoever asked hears a broken connection."""
KILLED = [
    *(pytest.param(GPUSHARE, point, id=f"gpushare-{point}") for point in ("after-filter", *sorted(BEFORE_THE_ANSWER))),
    *(
        pytest.param(
            System("gpu-admission", "admission", "gpushare", frozenset(), "predicates"), point, id=f"admission-{point}"
        )
        for point in ("after-filter", "after-late-claim", "after-late-patch")
    ),
    pytest.param(System("elastic-gpu", "elastic", "gpushare", frozenset()), "after-claim", id="elastic-after-claim"),
]


@pytest.mark.parametrize(("system", "point"), KILLED)
def test_a_server_killed_at_any_point_loses_and_doubles_nothing(
    scheduling: Scheduling, system: System, point: str
) -> None:
    """Three times at the same point, while twenty pods fill two nodes to the last unit."""
    scheduling.create(gpu_node("n1", "gpushare"), gpu_node("n2", "gpushare"))
    names = [f"p{number:02}" for number in range(20)]
    managed = [{"name": GPU_MEM}]
    extenders = [{**extender, "managedResources": managed} for extender in system.config["extenders"]]
    with (
        serving(scheduling, fault=point) as aliquot,
        recording(aliquot.url(system.endpoint)) as recorder,
    ):
        config = _with_short_back_off({**system.config, "extenders": extenders})
        scheduling.schedule(pointed_at(config, recorder.url))
        scheduling.create(*(asking(name, {GPU_MEM: 3}) for name in names))
        for fault in (point, point, ""):
            wait_for("the server to end at its fault point", lambda: not aliquot.process.running, seconds=60)
            aliquot.start(fault=fault)
        scheduling.wait_bound(*names, seconds=120)
        for name in names:
            scheduling.wait_annotated(name, PLACEMENT)
        assert unplaced(scheduling.observe(), [f"default/{name}" for name in names]) == []
    assert any(call.answer is None for call in recorder.calls) or point not in BEFORE_THE_ANSWER


def _names_by_uid(cluster: Scheduling) -> dict[str, str]:
    return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in cluster.pods()}


def _victims(side: Any, names: dict[str, str]) -> set[str]:
    """The names of those in the question, or in the answer, about n1."""
    by_node = _by_node(side, names)
    assert list(by_node) == ["n1"], side
    return by_node["n1"][0]


def _by_node(side: Any, names: dict[str, str]) -> dict[str, tuple[set[str], int]]:
    """The victims' names in the question, or in the answer, and how many of them violate a budget."""
    whole = side.get("NodeNameToVictims") or side.get("NodeNameToMetaVictims") or {}
    return {
        node: (
            {names[pod.get("UID") or pod["metadata"]["uid"]] for pod in victims["Pods"]},
            victims["NumPDBViolations"],
        )
        for node, victims in whole.items()
    }


def _placement(pods: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (pod,) = (pod for pod in pods if pod["metadata"]["name"] == name)
    found: dict[str, Any] = json.loads(pod["metadata"]["annotations"][PLACEMENT])
    return found

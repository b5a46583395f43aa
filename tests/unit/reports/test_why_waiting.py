"""The one cause for which a pod waits: each made on a small cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from aliquot.reports.causes import Cause, Outlook, Verdict
from aliquot.reports.explained import explain_pod
from aliquot.reports.why_waiting import why_waiting
from tests.factories import GPU_MEM, T4
from tests.unit.reports.clusters import SmallCluster, node, waiting

NEVER, NOT_NOW = Outlook.NEVER, Outlook.NOT_NOW
TAINTED = {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}}
TOLERATION = {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}


def cluster(*nodes: Any, **fields: Any) -> Callable[[], SmallCluster]:
    return lambda: SmallCluster(*(nodes or (node(),)), **fields)


def held(
    *units: int, nodes: Any = (), silent: tuple[str, ...] = (), quotas: str | None = None
) -> Callable[[], SmallCluster]:
    """A cluster in which so many units of the first node's cards are taken."""

    def make() -> SmallCluster:
        made = SmallCluster(*(nodes or (node(),)), quotas=quotas)
        for index, amount in enumerate(units):
            if amount:
                made.hold(f"holder-{index}", amount, index)
        made.silent.extend(silent)
        return made

    return make


def affinity(operator: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("made", "asked", "cause", "outlook", "words"),
    [
        pytest.param(
            cluster(),
            {"limits": {"aliyun.com/gpu-memory": "3"}},
            Cause.NO_SUCH_RESOURCE,
            NEVER,
            "no node has the resource aliyun.com/gpu-memory; did you mean aliyun.com/gpu-mem?",
            id="a typo in a resource",
        ),
        pytest.param(
            cluster(),
            {"limits": {"aliyum.com/gpu-mem": "3"}},
            Cause.NO_SUCH_RESOURCE,
            NEVER,
            "did you mean aliyun.com/gpu-mem?",
            id="a typo in its prefix",
        ),
        pytest.param(
            cluster(),
            {"limits": {"aliquot.io/gpu": "1", "aliquot.io/memory": "3"}},
            Cause.NO_SUCH_RESOURCE,
            NEVER,
            "no node has the resource aliquot.io/memory; it is an annotation of the pod, not a resource",
            id="an annotation as a resource",
        ),
        pytest.param(
            cluster(),
            {"limits": {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "4"}},
            Cause.NOT_SERVED,
            NEVER,
            "no node serves tencent.com/vcuda-core",
            id="no node serves it",
        ),
        pytest.param(
            cluster(node("n1", labels={"dialect.aliquot.io/gpushare": "true"})),
            {"limits": {"nvidia.com/gpu": "1"}},
            Cause.NOT_SERVED,
            NEVER,
            "no node serves nvidia.com/gpu; the nodes offer aliyun.com/gpu-count, aliyun.com/gpu-mem",
            id="the nodes serve another dialect",
        ),
        pytest.param(
            cluster(node("n1", capacity={"aliyun.com/gpu-mem": "30", "nvidia.com/gpu": "2"})),
            {"limits": {"nvidia.com/mig-7g.80gb": "1"}},
            Cause.NOT_SERVED,
            NEVER,
            "no node serves nvidia.com/mig-7g.80gb; the nodes offer nvidia.com/gpu",
            id="the nodes serve another resource of the dialect",
        ),
        pytest.param(
            cluster(node("n1", labels={"dialect.aliquot.io/gpushare": "true"}, capacity={"nvidia.com/gpu": "2"})),
            {"limits": {"nvidia.com/gpu": "1"}},
            Cause.NOT_SERVED,
            NEVER,
            "no node serves nvidia.com/gpu to pods like this",
            id="a resource of a dialect that the node does not serve",
        ),
        pytest.param(
            cluster(),
            {"scheduler_name": "theirs"},
            Cause.OTHER_SCHEDULER,
            NEVER,
            "the scheduler theirs is responsible",
            id="another scheduler",
        ),
        pytest.param(
            cluster(),
            {"schedulingGates": [{"name": "example.com/wait"}]},
            Cause.GATED,
            NEVER,
            "scheduling gates",
            id="a gate",
        ),
        pytest.param(cluster(), {"units": "10G"}, Cause.BAD_REQUEST, NEVER, "more than any GPU has", id="10G"),
        pytest.param(
            cluster(),
            {
                "says": "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
                "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}],
            },
            Cause.VOLUME,
            NOT_NOW,
            "pod has unbound immediate PersistentVolumeClaims (PersistentVolumeClaims: data)",
            id="a volume",
        ),
        pytest.param(
            cluster(node("n1", **TAINTED)),
            {},
            Cause.TAINT,
            NEVER,
            "the nodes with room on their cards have the taint team=red:NoSchedule",
            id="a taint",
        ),
        pytest.param(
            held(15, 15, nodes=(node("n1", **TAINTED),)),
            {},
            Cause.TAINT,
            NEVER,
            "the nodes that could take the pod have the taint team=red:NoSchedule",
            id="a taint on full nodes",
        ),
        pytest.param(
            cluster(node("n1", **TAINTED)), {"tolerations": [TOLERATION]}, Cause.FITS, Outlook.FITS, "", id="tolerated"
        ),
        pytest.param(
            cluster(node("n1", **TAINTED)),
            {"tolerations": [{"operator": "Exists"}]},
            Cause.FITS,
            Outlook.FITS,
            "",
            id="everything is tolerated",
        ),
        pytest.param(
            cluster(node("n1", **TAINTED)),
            {"tolerations": [TOLERATION | {"value": "blue"}]},
            Cause.TAINT,
            NEVER,
            "",
            id="another value is tolerated",
        ),
        pytest.param(
            cluster(node("n1", spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]})),
            {},
            Cause.NOT_READY,
            NOT_NOW,
            "are not ready (n1)",
            id="a taint of a node that is not ready",
        ),
        pytest.param(
            cluster(node("n1", spec={"unschedulable": True})),
            {},
            Cause.CORDONED,
            NOT_NOW,
            "cordoned (n1)",
            id="cordoned",
        ),
        pytest.param(
            cluster(),
            {"nodeSelector": {"disk": "ssd"}},
            Cause.NODE_SELECTOR,
            NEVER,
            "no node with room on its cards matches the pod's node selector",
            id="a selector",
        ),
        pytest.param(
            cluster(node("n1", labels={"zone": "a"})),
            {"affinity": affinity("In", "b", "c")},
            Cause.NODE_SELECTOR,
            NEVER,
            "affinity",
            id="an affinity",
        ),
        pytest.param(
            cluster(node("n1", labels={"zone": "7"})),
            {"affinity": affinity("Gt", "8")},
            Cause.NODE_SELECTOR,
            NEVER,
            "affinity",
            id="an affinity by number",
        ),
        pytest.param(
            cluster(node("n1", labels={"zone": "a"})),
            {"affinity": affinity("NotIn", "b")},
            Cause.FITS,
            Outlook.FITS,
            "",
            id="an affinity that matches",
        ),
        pytest.param(
            cluster(), {"requests": {"cpu": "33"}}, Cause.CPU, NEVER, "has as much CPU as the pod requests", id="CPU"
        ),
        pytest.param(
            held(1, nodes=(node("n1", capacity={"pods": "1"}),)), {}, Cause.PODS, NOT_NOW, "as many pods", id="pods"
        ),
        pytest.param(
            cluster(node("n1", capacity={"example.com/nic": "1"})),
            {"limits": {GPU_MEM: "3", "example.com/nic": "2"}},
            Cause.RESOURCE,
            NEVER,
            "example.com/nic",
            id="a device of another vendor",
        ),
        pytest.param(
            held(nodes=(node("n1", allocatable={GPU_MEM: "0"}),), silent=("n1",)),
            {},
            Cause.AGENT_SILENT,
            NOT_NOW,
            "the agent is silent on the nodes with room on their cards (n1), so kubelet offers no aliyun.com/gpu-mem",
            id="a silent agent",
        ),
        pytest.param(
            held(nodes=(node("n1", allocatable={GPU_MEM: "2"}),)),
            {},
            Cause.NO_DEVICES,
            NOT_NOW,
            "too few devices of aliyun.com/gpu-mem",
            id="kubelet has no devices",
        ),
        pytest.param(
            cluster(),
            {"says": "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. preemption: none"},
            Cause.SCHEDULER,
            NOT_NOW,
            "kube-scheduler says: node(s) didn't match pod anti-affinity rules",
            id="affinity to other pods",
        ),
        pytest.param(
            cluster(),
            {"says": "0/2 nodes are available: 1 a rule of tomorrow, of all things, 1 Insufficient cpu. more: no"},
            Cause.SCHEDULER,
            NOT_NOW,
            "kube-scheduler says: a rule of tomorrow, of all things",
            id="words that nobody knows",
        ),
        pytest.param(
            cluster(),
            {"says": "0/2 nodes are available: 1 Insufficient GPU Memory in one device, 1 Too many pods"},
            Cause.FITS,
            Outlook.FITS,
            "has not bound it yet",
            id="words of an earlier state",
        ),
        pytest.param(
            cluster(quotas='{"default": {"memory": {"Tesla T4": 3071}}}'),
            {},
            Cause.QUOTA,
            NEVER,
            "the pod alone exceeds the GPU quota of namespace default for Tesla T4",
            id="a pod beyond its quota",
        ),
        pytest.param(
            held(3, quotas='{"default": {"memory": {"Tesla T4": 4096}}}'),
            {},
            Cause.QUOTA,
            NOT_NOW,
            "the GPU quota of namespace default for Tesla T4 is used up",
            id="a used-up quota",
        ),
        pytest.param(
            cluster(quotas='{"default": {"quota": {"A100": 3}}}'),
            {},
            Cause.NOT_IN_QUOTA,
            NEVER,
            "the GPU quota of namespace default does not name Tesla T4",
            id="a model that the quota does not name",
        ),
        pytest.param(
            cluster(),
            {"annotations": {"nvidia.com/use-gputype": "A100"}},
            Cause.MODEL,
            NEVER,
            "no node has a card of the requested model (A100)",
            id="a model",
        ),
        pytest.param(held(8, 8), {"units": 8}, Cause.FRAGMENTED, NOT_NOW, "(fragmentation)", id="fragmentation"),
        pytest.param(held(14, 14), {"units": 8}, Cause.NO_ROOM, NOT_NOW, "too full", id="no room"),
        pytest.param(
            cluster(),
            {"units": 16},
            Cause.TOO_LARGE,
            NEVER,
            "no node's cards can hold the pod even when empty; it needs 16 units of memory of 1 card",
            id="too large",
        ),
        pytest.param(
            cluster(node("n1", {"healthy": False}, {"healthy": False})),
            {},
            Cause.UNHEALTHY,
            NOT_NOW,
            "every card that could hold the pod is unhealthy or cordoned (n1)",
            id="unhealthy cards",
        ),
        pytest.param(
            cluster(node("n1", {"healthy": False}), node("n2")),
            {"units": 16},
            Cause.TOO_LARGE,
            NEVER,
            "",
            id="too large for the unhealthy cards as well",
        ),
        pytest.param(
            cluster(node("n1", {"healthy": False}), node("n2", labels={"a": "b"}), node("n3", {"healthy": False})),
            {"units": 16, "annotations": {"nvidia.com/use-gputype": "T4"}},
            Cause.TOO_LARGE,
            NEVER,
            "",
            id="too large, and most cards are unhealthy",
        ),
        pytest.param(
            cluster(node("n1", {"healthy": False})),
            {"units": 16},
            Cause.TOO_LARGE,
            NEVER,
            "no node's cards can hold the pod even when empty",
            id="too large for unhealthy cards alone",
        ),
        pytest.param(
            held(8, nodes=(node("n1", {}), node("n2", {"mib": 2 * T4, "healthy": False}))),
            {"units": 16},
            Cause.UNHEALTHY,
            NOT_NOW,
            "(n2)",
            id="only an unhealthy card is large enough",
        ),
        pytest.param(
            held(14, 14, nodes=(node("n1"), node("n2", {"mib": T4 // 2}))),
            {"units": 8},
            Cause.NO_ROOM,
            NOT_NOW,
            "",
            id="a node that could take it counts more than one that never can",
        ),
        pytest.param(lambda: SmallCluster(), {}, Cause.NO_NODE, NEVER, "no node has a card", id="no node"),
        pytest.param(cluster(), {"limits": {"cpu": "1"}}, Cause.NO_GPU, Outlook.SETTLED, "asks for none", id="no GPU"),
    ],
)
def test_the_dominant_cause_is_named_and_whether_waiting_helps(
    made: Callable[[], SmallCluster], asked: dict[str, Any], cause: Cause, outlook: Outlook, words: str
) -> None:
    asked = {("schedulerName" if key == "scheduler_name" else key): value for key, value in asked.items()}
    small, pod = made(), waiting(**asked)

    verdict = why_waiting(small.state, pod, small.around())
    told = explain_pod(small.state, pod, small.around(), lambda _: True)

    assert (verdict.cause, verdict.outlook) == (cause, outlook), verdict.headline
    assert words in verdict.sentence
    assert verdict.headline in told.text().splitlines()[0], "the leader and the command say the same"


def verdict_of(small: SmallCluster, **asked: Any) -> Verdict:
    return why_waiting(small.state, waiting(**asked), small.around())


def test_numbers_that_change_do_not_change_the_sentence() -> None:
    small = SmallCluster(node())
    small.hold("a", 14)
    small.hold("b", 13, 1)
    before = verdict_of(small, units=8)
    small.hold("c", 1)

    assert verdict_of(small, units=8) == before

"""The whole explanation of a pod, as people read it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from aliquot.control.state.events import Decided, PodSeen, StateEvent
from aliquot.model.kubernetes import ContainerStatus
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.explained import explain_pod
from tests.unit.reports.clusters import SmallCluster, node, waiting


def full(namespace: str = "default", other: str = "research") -> SmallCluster:
    small = SmallCluster(node("n1"), node("n2", spec={"unschedulable": True}), node("n3", {}))
    small.hold("own", 12, namespace=namespace)
    small.hold("theirs", 11, 1, namespace=other)
    small.hold("large", 14, 0, on="n2", namespace=other)
    small.hold("larger", 15, 1, on="n2", namespace=other)
    small.hold("whole", 15, 0, on="n3", namespace=other)
    return small


def test_the_cause_comes_first_then_the_rest_then_what_would_help() -> None:
    small = full()

    told = explain_pod(small.state, waiting(5, says="0/2 nodes are available"), small.around(), lambda _: True)

    assert (
        told.text()
        == """\
default/p waits. Not now: no single card has enough left, although a node's cards together have (fragmentation)
It needs 5 units of memory of 1 card.
  3 nodes: not enough room on the node's GPUs now (the freest card has 4,096 MiB left)
  1 node: the node is cordoned
It fits
  if memory <= 4 units
  when pod research/theirs ends (on n1)
  when pod research/whole ends (on n3)
n1: not enough room on the node's GPUs now
  GPU 0 (Tesla T4, 15,360 MiB) has 3072 MiB left; the pod needs 5120 MiB
  GPU 1 (Tesla T4, 15,360 MiB) has 4096 MiB left; the pod needs 5120 MiB
n2: not enough room on the node's GPUs now
  GPU 0 (Tesla T4, 15,360 MiB) has 1024 MiB left; the pod needs 5120 MiB
  GPU 1 (Tesla T4, 15,360 MiB) has 0 MiB left; the pod needs 5120 MiB
n3: not enough room on the node's GPUs now
  GPU 0 (Tesla T4, 15,360 MiB) has 0 MiB left; the pod needs 5120 MiB
Its scheduler says: 0/2 nodes are available"""
    )


def test_pods_that_the_caller_may_not_read_have_no_name() -> None:
    small = full()

    told = explain_pod(small.state, waiting(5), small.around(), lambda namespace: namespace == "default")

    assert told.changes == (
        "if memory <= 4 units",
        "when a pod of another namespace ends (on n1)",
        "when a pod of another namespace ends (on n3)",
    )


def test_what_alone_closes_a_node_with_room_is_what_would_help() -> None:
    taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
    small = SmallCluster(
        node("n1", spec={"taints": [taint]}),
        node("n2", spec={"taints": [taint]}),
        node("n3", spec={"unschedulable": True}),
        node("n4", spec={"unschedulable": True, "taints": [taint]}),
    )

    told = explain_pod(small.state, waiting(3), small.around(), lambda _: True)

    assert told.changes == (
        "with a toleration for the taint team=red:NoSchedule (on n1)",
        "when node n3 is uncordoned",
    )
    assert told.reasons[0] == "4 nodes: the cards have room"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 15), st.integers(0, 1), st.sampled_from(["n1", "n2"]))),
    st.integers(1, 17),
    st.sets(st.sampled_from("abc")),
)
def test_no_explanation_names_a_pod_of_a_namespace_that_the_caller_may_not_read(
    pods: list[tuple[str, int, int, str]], units: int, readable: set[str]
) -> None:
    small = SmallCluster(node("n1"), node("n2"))
    taken = {("n1", 0): 0, ("n1", 1): 0, ("n2", 0): 0, ("n2", 1): 0}
    for place, (namespace, size, index, on) in enumerate(pods):
        if taken[on, index] + size <= 15:
            taken[on, index] += size
            small.hold(f"holder{place}", size, index, on=on, namespace=f"ns-{namespace}")
    names = {f"ns-{namespace}" for namespace in readable}

    told = explain_pod(small.state, waiting(units, namespace="ns-a"), small.around(), names.__contains__)

    hidden = {pod.key for pods_here in small.pods.values() for pod in pods_here if pod.metadata.namespace not in names}
    assert not any(f"{key} " in told.text() for key in hidden)
    assert not any("holder" in line for line in told.changes) or names


def _statuses(*manifests: dict[str, Any]) -> list[ContainerStatus]:
    return msgspec.convert(list(manifests), list[ContainerStatus])


def test_a_bound_pod_is_told_what_it_has_and_why_it_does_not_run() -> None:
    small = SmallCluster(node())
    small.hold("own", 12, 1)
    (pod,) = small.pods["n1"]
    waits = {"name": "main", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no placement"}}}
    bound = waiting(12, nodeName="n1")
    bound = structs.replace(
        bound,
        metadata=pod.metadata,
        status=structs.replace(bound.status, container_statuses=_statuses(waits)),
    )

    told = explain_pod(small.state, bound, small.around(), lambda _: True)

    assert (
        told.text()
        == """\
default/own. Placed: the pod is bound to n1
  container main: 12,288 MiB of card 1 (Tesla T4), GPU-n1-1
  Aliquot chose among the nodes by policy tightest, and among the cards by policy tightest
  container main does not run: CreateContainerConfigError: no placement"""
    )


def test_a_pod_that_is_not_on_a_node_is_not_called_placed() -> None:
    small = SmallCluster(node())
    foreign = waiting(limits={"amd.com/gpu": "1"})
    failed = waiting()
    failed = structs.replace(failed, status=structs.replace(failed.status, phase="Failed"))

    told = [explain_pod(small.state, pod, small.around(), lambda _: True).text() for pod in (foreign, failed)]

    assert told == [
        "default/p waits. Not for a card: the pod asks for none, so Aliquot does not hold it back",
        "default/p. Ended: the pod has ended or is terminating",
    ]


class Forgetful:
    def record(self, event: StateEvent | Decided) -> None:
        """Nobody reads this log."""


def test_a_bound_pod_is_told_why_it_is_there_while_the_decision_is_remembered() -> None:
    small = SmallCluster(node("n1"), node("n2"), node("n3", {"mib": 1024}))
    small.state.recorder = Forgetful()
    small.hold("neighbour", 2, 1)
    pod = waiting(12)
    demand = small.state.demand_of(pod)
    assert demand is not None
    decided = small.state.judge(demand).placement("n1")
    assert decided is not None
    annotations = {PLACEMENT: write_placement(decided)}
    bound = structs.replace(
        pod,
        metadata=structs.replace(pod.metadata, annotations=annotations),
        spec=structs.replace(pod.spec, node_name="n1"),
    )
    small.state.apply(PodSeen(bound))

    def why() -> str:
        return explain_pod(small.state, bound, small.around(), lambda _: True).holds[-1]

    policies = "Aliquot chose among the nodes by policy tightest, and among the cards by policy tightest"
    assert why().startswith(f"{policies}. It fit on 2 nodes, and this was the best because ")
    assert why().endswith("; 1 node: request exceeds the node's GPUs even when empty")
    small.state.decisions.forget(pod.metadata.uid)
    assert why() == policies

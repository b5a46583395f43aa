"""Reports say of pods what the metrics say: one rule tells what a pod uses."""

from collections.abc import Mapping

from aliquot.model.bounds import MIB
from aliquot.model.load import CardLoad, NodeLoad, PodLoad
from aliquot.reports.pods import pods_report
from aliquot.reports.report import Use
from aliquot.reports.view import ClusterView
from aliquot.reports.waste import waste_report
from tests.unit.reports.clusters import SmallCluster, node


def view(cluster: SmallCluster, load: NodeLoad, only_namespace: str = "") -> ClusterView:
    pods = {pod.metadata.uid: pod for own in cluster.pods.values() for pod in own}
    return ClusterView(cluster.state, 0.0, cluster.nodes, pods, loads={"n1": load}, only_namespace=only_namespace)


def uses(seen: ClusterView) -> Mapping[str, Use]:
    return {pod.name: pod.use for pod in pods_report(seen).pods}


def two_pods() -> tuple[SmallCluster, str, str]:
    cluster = SmallCluster(node())
    cluster.hold("p", 6)
    cluster.hold("q", 3)
    card = next(iter(cluster.state.cards("n1").by_uuid))
    return cluster, card, cluster.pods["n1"][0].metadata.uid


def test_a_pod_without_processes_beside_one_that_works_is_idle() -> None:
    cluster, card, p = two_pods()
    seen = view(cluster, NodeLoad(0.0, {card: CardLoad(0.5)}, {p: {card: PodLoad(MIB, 0.5)}}))
    assert uses(seen) == {"p": Use(cores=0.5, memory_bytes=MIB), "q": Use(cores=0.0, memory_bytes=0)}
    wasted = {pod.name: (pod.held, pod.used, pod.unused, pod.is_idle) for pod in waste_report(seen).pods}
    assert wasted == {"p": (0.4, 0.5, 0.0, False), "q": (0.2, 0.0, 0.2, True)}


def test_pods_that_cannot_be_told_apart_are_not_measured() -> None:
    cluster, card, _ = two_pods()
    seen = view(cluster, NodeLoad(0.0, {card: CardLoad(0.5)}))
    assert set(uses(seen).values()) == {Use()}
    report = waste_report(seen)
    assert (report.held, report.measured, report.unused) == (0.6, 0.0, 0.0)


def test_a_pod_alone_on_its_card_uses_what_the_card_does_if_all_pods_are_seen() -> None:
    cluster = SmallCluster(node())
    cluster.hold("p", 3)
    card = next(iter(cluster.state.cards("n1").by_uuid))
    load = NodeLoad(0.0, {card: CardLoad(0.5, 2 * MIB)})
    assert uses(view(cluster, load)) == {"p": Use(cores=0.5, memory_bytes=2 * MIB)}
    assert uses(view(cluster, load, only_namespace="default")) == {"p": Use()}, "a neighbour may be hidden"

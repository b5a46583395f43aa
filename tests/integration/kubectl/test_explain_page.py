"""docs/explain.md shows what `kubectl gpu explain` prints, byte by byte.

`python -m tests.integration.kubectl.test_explain_page` writes the present output into the page: read the difference.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from aliquot.kube.resources import Event, InvolvedObject
from aliquot.model import NodeGpus
from aliquot.model.kubernetes import Condition, Metadata, PodStatus
from aliquot.model.pending_pod import PendingPod
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.objects import ClusterObjects
from tests.factories import make_gpu, make_node, make_placement, make_pod
from tests.integration.kubectl.command import archived
from tests.integration.kubectl.golden import blocks, rewritten, shown
from tests.unit.reports.clusters import waiting

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"
QUOTA = "pods is forbidden: exceeded quota: team, requested: requests.aliyun.com/gpu-mem=8, used: 60, limited: 64"


def cards(node: str, model: str = "Tesla T4", **fields: Any) -> NodeGpus:
    return NodeGpus(node, tuple(make_gpu(index, node, model=model, **fields) for index in range(2)), 1024)


NODES = {"gpu-1": cards("gpu-1"), "gpu-2": cards("gpu-2"), "gpu-3": cards("gpu-3", "NVIDIA L4", mib=23552)}


def held(name: str, node: str, index: int, units: int, namespace: str = "research") -> Any:
    record = write_placement(make_placement(NODES[node], index, main=units * 1024))
    metadata = {"annotations": {PLACEMENT: record}}
    return make_pod(name, units, namespace=namespace, node=node, metadata=metadata, status={"phase": "Running"})


def waits(name: str, units: int = 8, **fields: Any) -> PendingPod:
    pod = waiting(units, namespace="research", **fields)
    metadata = Metadata(name=name, namespace="research", uid=f"uid-{name}", annotations=pod.metadata.annotations)
    refused = Condition(type="PodScheduled", status="False")
    return PendingPod(metadata=metadata, spec=pod.spec, status=PodStatus(phase="Pending", conditions=[refused]))


def cluster() -> ClusterObjects:
    tainted = {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}
    nodes = [make_node("gpu-1", NODES["gpu-1"]), make_node("gpu-2", NODES["gpu-2"])]
    nodes.append(make_node("gpu-3", NODES["gpu-3"], spec=tainted))
    pods = [
        held("notebook", "gpu-1", 0, 9),
        held("batch", "gpu-1", 1, 8, "team-b"),
        held("served", "gpu-2", 0, 15, "team-b"),
        held("tuned", "gpu-2", 1, 12),
    ]
    waiters = [
        waits("train", annotations={"nvidia.com/use-gputype": "T4"}),
        waits("render", annotations={"nvidia.com/use-gputype": "L4"}),
        waits("typo", limits={"aliyun.com/gpu-memory": "8"}),
    ]
    event = Event(
        metadata=Metadata(name="evals.1", namespace="research"),
        involved_object=InvolvedObject(kind="ReplicaSet", name="evals-5d9c7", namespace="research"),
        reason="FailedCreate",
        message=QUOTA,
    )
    objects = [*pods, *(make_pod(p.metadata.name, namespace="research", uid=p.metadata.uid) for p in waiters)]
    return ClusterObjects(1_800_000_000.0, nodes, objects, events=[event], waiting=waiters)


_CASES = dict(blocks(PAGE.read_text()))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return archived(cluster(), Path(tmp_path_factory.mktemp("archive")))


def test_the_page_has_examples() -> None:
    assert len(_CASES) >= 4


@pytest.mark.parametrize("arguments", _CASES)
def test_output(arguments: str, archive: str) -> None:
    assert shown(arguments, archive) == _CASES[arguments]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(rewritten(PAGE.read_text(), archived(cluster(), Path(folder))))

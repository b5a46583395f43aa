"""What we read of pods and nodes."""

from typing import Any

import msgspec
import pytest

from aliquot.model import UNKNOWN_HOST, Host, Life
from aliquot.model.host import UNKNOWN
from tests.factories import container_manifest, make_node, make_pod

RUNNING = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
STARTING = {"state": {"running": {"startedAt": None}}}
JUST_RUNNING: dict[str, Any] = {"state": {"running": {}}}
RUNNING_LATER: dict[str, Any] = {"state": {"running": {"startedAt": None, "attempt": 2, "resized": {"cpu": ["1"]}}}}
TERMINATED: dict[str, Any] = {"state": {"terminated": {"exitCode": 0}}}
WAITING: dict[str, Any] = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}

ENDED: list[Any] = [
    pytest.param("Succeeded", [], [], True, id="succeeded"),
    pytest.param("Failed", [], [], True, id="failed"),
    pytest.param("Failed", [TERMINATED, WAITING], [TERMINATED], True, id="failed with all containers ended"),
    pytest.param("Failed", [TERMINATED, RUNNING], [], False, id="failed with a container on its way out"),
    pytest.param("Failed", [STARTING], [], False, id="failed with one that runs since an unknown time"),
    pytest.param("Failed", [JUST_RUNNING], [], False, id="failed with one that runs and tells nothing"),
    pytest.param("Failed", [RUNNING_LATER], [], False, id="failed with one of which a later version tells more"),
    pytest.param("Failed", [TERMINATED], [RUNNING], False, id="failed with a sidecar on its way out"),
    pytest.param("Running", [TERMINATED], [], False, id="running, though its containers have ended"),
    pytest.param("Pending", [], [], False, id="pending"),
    pytest.param("Unknown", [], [], False, id="unknown"),
    pytest.param("", [], [], False, id="without a phase"),
]


@pytest.mark.parametrize(("phase", "containers", "init", "ended"), ENDED)
def test_a_pod_has_ended_when_its_phase_says_so_and_no_container_runs(
    phase: str, containers: list[Any], init: list[Any], ended: bool
) -> None:
    status = {"phase": phase, "containerStatuses": containers, "initContainerStatuses": init}
    assert make_pod(status=status).ended is ended


BETWEEN_RUNS: dict[str, Any] = WAITING | {"lastState": {"terminated": {"exitCode": 1}}}


@pytest.mark.parametrize(
    ("status", "started"),
    [
        pytest.param(WAITING, False, id="waits for its first run"),
        pytest.param(BETWEEN_RUNS, True, id="waits between two runs"),
        pytest.param(RUNNING, True, id="runs"),
        pytest.param(TERMINATED, True, id="has run"),
    ],
)
def test_a_pod_has_started_if_a_container_with_cards_runs_or_has_run(status: dict[str, Any], started: bool) -> None:
    assert make_pod(status={"containerStatuses": [{"name": "main", **status}]}).started is started


def test_a_pod_that_is_being_deleted_has_not_ended() -> None:
    pod = make_pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status={"phase": "Running"})
    assert not pod.ended


def test_containers_come_in_the_order_in_which_kubelet_starts_them() -> None:
    pod = make_pod(
        containers=[container_manifest("a"), container_manifest("b")],
        initContainers=[container_manifest("i"), container_manifest("s", restartPolicy="Always")],
    )
    assert [(container.name, life) for container, life in pod.containers()] == [
        ("i", Life.INIT),
        ("s", Life.SIDECAR),
        ("a", Life.MAIN),
        ("b", Life.MAIN),
    ]


@pytest.mark.parametrize("amount", ["3", 3, 2.5], ids=["text", "an integer", "a float"])
def test_limits_are_read_however_they_were_written(amount: Any) -> None:
    container = container_manifest() | {"resources": {"limits": {"aliyun.com/gpu-mem": amount}}}
    pod = make_pod(containers=[container])
    assert pod.spec.containers[0].limits == {"aliyun.com/gpu-mem": amount}


@pytest.mark.parametrize("resources", [{}, {"limits": None}, {"requests": {"cpu": 1}}], ids=["none", "null", "others"])
def test_a_container_without_limits_has_none(resources: dict[str, Any]) -> None:
    pod = make_pod(containers=[{"name": "main", "resources": resources}])
    assert pod.spec.containers[0].limits == {}


@pytest.mark.parametrize(
    ("gates", "is_gated"),
    [
        pytest.param([{"name": "a.example/gate"}], True, id="a gate"),
        pytest.param([{"name": "a.example/gate", "since": 7, "by": {"kind": ["User"]}}], True, id="one that says more"),
        pytest.param([], False, id="none"),
        pytest.param(None, False, id="null"),
    ],
)
def test_scheduling_gates_are_seen_whatever_later_versions_write_in_them(gates: Any, is_gated: bool) -> None:
    assert bool(make_pod(schedulingGates=gates).spec.scheduling_gates) is is_gated


def test_keys_have_a_namespace_where_there_is_one() -> None:
    assert make_pod("p", namespace="ml").key == "ml/p"
    assert make_node("n1").key == "n1"


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_is_ready_by_its_condition(ready: bool) -> None:
    assert make_node(ready=ready).ready is ready


def _asking(name: str = "main", cpu: str = "0", memory: str = "0", **fields: Any) -> dict[str, Any]:
    return container_manifest(name, resources={"requests": {"cpu": cpu, "memory": memory}}, **fields)


_HOSTS: list[Any] = [
    pytest.param({"containers": [container_manifest()]}, Host(), id="nothing"),
    pytest.param({"containers": [_asking(cpu="1500m", memory="2Gi")]}, Host(1500, 2048), id="one container"),
    pytest.param({"containers": [_asking("a", "1"), _asking("b", "2")]}, Host(3000), id="containers are added"),
    pytest.param({"containers": [_asking(memory="100M")]}, Host(0, 96), id="memory is rounded up to MiB"),
    pytest.param(
        {"containers": [_asking("a", memory="512Ki"), _asking("b", memory="512Ki")]}, Host(0, 1), id="once for the pod"
    ),
    pytest.param(
        {"containers": [_asking(cpu="1")], "initContainers": [_asking("i", "4", "1Gi")]},
        Host(4000, 1024),
        id="the peak over init containers",
    ),
    pytest.param(
        {"containers": [container_manifest(resources={"limits": {"cpu": "2"}})]},
        Host(2000),
        id="a limit stands in for a request",
    ),
    pytest.param(
        {"containers": [_asking(cpu="1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
        Host(1250, 120),
        id="the overhead of its runtime class",
    ),
    pytest.param(
        {
            "containers": [_asking(cpu="1", memory="1Gi")],
            "resources": {"requests": {"cpu": "3"}},
            "overhead": {"cpu": "1"},
        },
        Host(4000, 1024),
        id="requests for all containers together",
    ),
    pytest.param({"containers": [_asking(cpu="many", memory="1Gi")]}, Host(0, 1024), id="an unreadable amount"),
    pytest.param({"containers": [_asking(cpu="9E")]}, Host(UNKNOWN), id="more than an array can hold"),
]


@pytest.mark.parametrize(("spec", "host"), _HOSTS)
def test_a_pod_requests_cpu_and_memory_as_kube_scheduler_counts_them(spec: dict[str, Any], host: Host) -> None:
    assert make_pod(**spec).host == host


@pytest.mark.parametrize(
    ("allocatable", "host"),
    [
        pytest.param({"cpu": "31500m", "memory": "131889Ki"}, Host(31500, 128), id="memory is rounded down to MiB"),
        pytest.param({"cpu": "32"}, Host(32000, UNKNOWN), id="what it does not say is unknown"),
        pytest.param({"cpu": "?", "memory": "-1"}, UNKNOWN_HOST, id="and so is what cannot be read"),
        pytest.param({}, UNKNOWN_HOST, id="nothing"),
    ],
)
def test_a_node_offers_its_allocatable_cpu_and_memory(allocatable: dict[str, Any], host: Host) -> None:
    node = make_node()
    status = msgspec.structs.replace(node.status, allocatable=allocatable)
    assert msgspec.structs.replace(node, status=status).host == host

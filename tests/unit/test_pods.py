"""What we read of pods and nodes."""

from typing import Any

import pytest

from aliquot.model import Life
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

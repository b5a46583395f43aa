"""What `kubectl get` prints: Tables as the real server makes them."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from aliquot.apiserver.ages import age, human
from aliquot.embedded.api.pod_table import PODS as POD_TABLE
from aliquot.embedded.api.pod_table import status_of
from tests.integration.embedded.client import BUDGETS, CONFIG_MAPS, LEASES, NODES, PODS, TABLE, Api, config_map, pod

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY, YEAR = 1, 60, 3600, 86_400, 365 * 86_400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (3 * MINUTE + 20, "3m20s"),
        (10 * MINUTE + 20, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 5 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (700 * DAY, "700d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 3 * DAY, "2y3d"),
        (9 * YEAR + 3 * DAY, "9y"),
    ],
)
def test_ages(seconds: int, shown: str) -> None:
    assert human(seconds) == shown


def test_an_age_of_nothing_is_unknown() -> None:
    assert age("", NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<unknown>"
    assert age("2026-05-04T11:59:00", NOW) == "<unknown>"
    assert age("2026-05-04T11:59:00.123456Z", NOW) == "59s"


def running(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "ready": True, "state": {"running": {}}, **fields}


def waiting(reason: str, name: str = "main") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason}}}


def ended(code: int = 0, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, **fields}}}


DELETED = {"deletionTimestamp": "2026-05-04T12:00:00Z"}
READY = [{"type": "Ready", "status": "True"}]
INIT = {"initContainers": [{"name": "i0"}, {"name": "i1"}]}
SIDECAR = {"initContainers": [{"name": "i0", "restartPolicy": "Always"}]}
STATUSES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("Pending", {}, {"phase": "Pending"}, {}),
    ("Running", {}, {"phase": "Running", "containerStatuses": [running()]}, {}),
    ("AliquotNoRoom", {}, {"phase": "Failed", "reason": "AliquotNoRoom"}, {}),
    (
        "SchedulingGated",
        {},
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
        {},
    ),
    ("ContainerCreating", {}, {"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}, {}),
    (
        "CrashLoopBackOff",
        {},
        {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff"), running("b")]},
        {},
    ),
    ("Completed", {}, {"phase": "Succeeded", "containerStatuses": [ended(reason="Completed")]}, {}),
    ("Error", {}, {"phase": "Failed", "containerStatuses": [ended(1, reason="Error")]}, {}),
    ("ExitCode:2", {}, {"phase": "Failed", "containerStatuses": [ended(2)]}, {}),
    ("Signal:9", {}, {"phase": "Failed", "containerStatuses": [ended(137, signal=9)]}, {}),
    (
        "Running",
        {},
        {"phase": "Running", "conditions": READY, "containerStatuses": [ended(reason="Completed"), running("b")]},
        {},
    ),
    ("NotReady", {}, {"phase": "Running", "containerStatuses": [ended(reason="Completed"), running("b")]}, {}),
    (
        "OOMKilled",
        {},
        {"phase": "Running", "containerStatuses": [ended(reason="Completed"), ended(1, "b", reason="OOMKilled")]},
        {},
    ),
    ("Terminating", DELETED, {"phase": "Running", "containerStatuses": [running()]}, {}),
    ("Unknown", DELETED, {"phase": "Running", "reason": "NodeLost"}, {}),
    ("Completed", DELETED, {"phase": "Succeeded", "containerStatuses": [ended(reason="Completed")]}, {}),
    (
        "Init:0/2",
        {},
        {"phase": "Pending", "initContainerStatuses": [running("i0"), waiting("PodInitializing", "i1")]},
        INIT,
    ),
    (
        "Init:1/2",
        {},
        {"phase": "Pending", "initContainerStatuses": [ended(0, "i0"), waiting("PodInitializing", "i1")]},
        INIT,
    ),
    (
        "Init:ImagePullBackOff",
        {},
        {"phase": "Pending", "initContainerStatuses": [waiting("ImagePullBackOff", "i0")]},
        INIT,
    ),
    ("Init:Error", {}, {"phase": "Pending", "initContainerStatuses": [ended(1, "i0", reason="Error")]}, INIT),
    ("Init:ExitCode:3", {}, {"phase": "Pending", "initContainerStatuses": [ended(3, "i0")]}, INIT),
    (
        "Running",
        {},
        {"phase": "Running", "initContainerStatuses": [running("i0", started=True)], "containerStatuses": [running()]},
        SIDECAR,
    ),
]


@pytest.mark.parametrize(("shown", "metadata", "status", "spec"), STATUSES)
def test_the_status_of_a_pod(
    shown: str, metadata: dict[str, Any], status: dict[str, Any], spec: dict[str, Any]
) -> None:
    assert status_of({"metadata": metadata, "status": status, "spec": spec}) == shown


def test_ready_containers_and_restarts_are_counted() -> None:
    last = {"terminated": {"exitCode": 1, "finishedAt": "2026-05-04T11:59:30Z"}}
    status = {
        "phase": "Running",
        "initContainerStatuses": [running("i0", started=True, restartCount=1)],
        "containerStatuses": [running(restartCount=2, lastState=last), {**running("b"), "ready": False}],
        "podIPs": [{"ip": "10.0.0.9"}],
        "conditions": [{"type": "example.com/up", "status": "True"}],
    }
    spec = {
        **SIDECAR,
        "containers": [{"name": "main"}, {"name": "b"}],
        "nodeName": "node-1",
        "readinessGates": [{"conditionType": "example.com/up"}, {"conditionType": "example.com/other"}],
    }
    cells = POD_TABLE.cells({"metadata": {"name": "web"}, "status": status, "spec": spec}, NOW)
    assert cells == ["web", "2/3", "Running", "3 (30s ago)", "<unknown>", "10.0.0.9", "node-1", "<none>", "1/2"]


def headings(table: dict[str, Any], *, wide: bool) -> list[str]:
    return [c["name"].upper() for c in table["columnDefinitions"] if wide or c["priority"] == 0]


class _Young:
    """An age of a few seconds: a real server's clock does not stand still."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(r"\ds", other) is not None


YOUNG = _Young()


async def test_pods(api: Api) -> None:
    await api.post(PODS, pod())
    table = (await api.get(PODS, accept=TABLE)).expect(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert headings(table, wide=False) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert headings(table, wide=True)[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    (row,) = table["rows"]
    assert row["cells"] == ["web", "0/1", "Pending", "0", YOUNG, *["<none>"] * 4]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "web"


async def test_ended_pods_are_marked(api: Api) -> None:
    await api.post(PODS, pod())
    await api.patch(f"{PODS}/web/status", {"status": {"phase": "Failed"}})
    (row,) = (await api.get(PODS, accept=TABLE)).expect(200)["rows"]
    assert row["conditions"][0]["reason"] == "Failed"


async def test_nodes(api: Api) -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"},
    }
    labels = {"node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "worker"}
    body = {"metadata": {"name": "n", "labels": labels}, "spec": {"unschedulable": True}, "status": status}
    await api.post(NODES, body)
    await api.post(NODES, {"metadata": {"name": "unknown"}})
    table = (await api.get(NODES, accept=TABLE)).expect(200)
    assert headings(table, wide=True) == [
        *("NAME", "STATUS", "ROLES", "AGE", "VERSION"),
        *("INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"),
    ]
    assert table["rows"][0]["cells"] == [
        *("n", "Ready,SchedulingDisabled", "gpu,worker", YOUNG, "v1.37.0"),
        *("10.0.0.1", "<none>", "<unknown>", "6.1 (amd64)", "<unknown>"),
    ]
    assert table["rows"][1]["cells"][1:3] == ["Unknown", "<none>"]


@pytest.mark.embedded_only("ages are counted from a clock that stands still")
async def test_events(api: Api) -> None:
    events = PODS.replace("pods", "events")
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "web"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": " no room\n",
        "source": {"component": "aliquot", "host": "node-1"},
        "firstTimestamp": "2026-05-04T11:00:00Z",
        "lastTimestamp": "2026-05-04T11:59:00Z",
        "count": 3,
    }
    await api.post(events, body)
    table = (await api.get(events, accept=TABLE)).expect(200)
    assert headings(table, wide=False) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert table["rows"][0]["cells"] == [
        *("60s", "Warning", "FailedScheduling", "pod/web", "", "aliquot, node-1", "no room"),
        *("60m", 3, "e"),
    ]


@pytest.mark.embedded_only("ages are counted from a clock that stands still")
async def test_events_of_the_newer_kind_have_other_times(api: Api) -> None:
    series = {"count": 5, "lastObservedTime": "2026-05-04T11:59:30.000000Z"}
    body = {"metadata": {"name": "e"}, "eventTime": "2026-05-04T11:58:30.000000Z", "series": series}
    await api.post(PODS.replace("pods", "events"), body)
    (row,) = (await api.get("/api/v1/events", accept=TABLE)).expect(200)["rows"]
    assert (row["cells"][0], row["cells"][7], row["cells"][8]) == ("30s", "90s", 5)


@pytest.mark.parametrize(
    ("path", "body", "cells"),
    [
        (LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}, ["l", "me", YOUNG]),
        (CONFIG_MAPS, config_map("c", a="1", b="2"), ["c", 2, YOUNG]),
        (BUDGETS, {"metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}}, ["b", "50%", "N/A", 0, YOUNG]),
        (BUDGETS, {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0}}, ["b", "N/A", "0", 0, YOUNG]),
        ("/api/v1/namespaces", {"metadata": {"name": "team"}}, ["team", "Active", YOUNG]),
        (CONFIG_MAPS.replace("configmaps", "serviceaccounts"), {"metadata": {"name": "s"}}, ["s", YOUNG]),
    ],
)
async def test_other_resources(api: Api, path: str, body: dict[str, Any], cells: list[Any]) -> None:
    await api.post(path, body)
    name = body["metadata"]["name"]
    assert (await api.get(f"{path}/{name}", accept=TABLE)).expect(200)["rows"][0]["cells"] == cells


@pytest.mark.parametrize(("include", "kind"), [("Object", "Pod"), ("Metadata", "PartialObjectMetadata")])
async def test_rows_include_what_is_asked(api: Api, include: str, kind: str) -> None:
    await api.post(PODS, pod())
    (row,) = (await api.get(PODS, accept=TABLE, includeObject=include)).expect(200)["rows"]
    assert row["object"]["kind"] == kind


async def test_rows_can_come_without_objects(api: Api) -> None:
    await api.post(PODS, pod())
    (row,) = (await api.get(PODS, accept=TABLE, includeObject="None")).expect(200)["rows"]
    assert row["object"] is None
    (await api.get(PODS, accept=TABLE, includeObject="Half")).refused(400, "BadRequest")


async def test_pages_of_tables(api: Api) -> None:
    for name in ("a", "b"):
        await api.post(PODS, pod(name))
    table = (await api.get(PODS, accept=TABLE, limit="1")).expect(200)
    assert table["metadata"]["remainingItemCount"] == 1
    rest = await api.get(PODS, accept=TABLE, **{"continue": table["metadata"]["continue"]})
    assert [row["cells"][0] for row in rest.expect(200)["rows"]] == ["b"]

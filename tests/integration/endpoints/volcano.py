"""The Volcano scheduler's side: its cycle in memory, and what each version sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aliquot.endpoints.volcano_wire import Code
from aliquot.model import Pod
from tests.factories import pod_manifest
from tests.integration.endpoints.endpoint import Endpoint

PREFIX = "/scheduler"
PENDING, ALLOCATED, PIPELINED, BINDING, BOUND, RUNNING, RELEASING = 1, 2, 4, 8, 16, 32, 64
VERSIONS = ("1.7.0", "1.8.2", "1.14.1")


def amounts(**scalars: float) -> dict[str, Any]:
    return {"MilliCPU": 0, "Memory": 0, "ScalarResources": scalars or None, "MaxTaskNum": 0}


def task_info(
    pod: Mapping[str, Any], version: str = "1.14.1", *, status: int = PENDING, node: str = "", **fields: Any
) -> dict[str, Any]:
    """A TaskInfo, with the fields in which versions differ."""
    meta = pod["metadata"]
    role = {} if version in ("1.7.0", "1.8.2") else {"TaskRole": "", "EvictionOccurred": False}
    return {
        "UID": meta["uid"],
        "Job": f"{meta['namespace']}/gang",
        "Name": meta["name"],
        "Namespace": meta["namespace"],
        **role,
        "Resreq": amounts(),
        "InitResreq": amounts(),
        "NodeName": node,
        "Status": status,
        "LastTransaction": None,
        "Pod": pod,
        **fields,
    }


def node_info(
    name: str, tasks: list[dict[str, Any]] | None = None, version: str = "1.14.1", **fields: Any
) -> dict[str, Any]:
    size = {"Capability": amounts(), "GPUDevices": {}} if version == "1.7.0" else {"Capacity": amounts()}
    by_uid = {task["UID"]: task for task in tasks or ()}
    return {"Name": name, "Node": None, "Idle": amounts(), **size, "Tasks": by_uid, "Others": None, **fields}


@dataclass(frozen=True)
class PredicateResult:
    code: Code
    why: str = ""

    @property
    def fits(self) -> bool:
        return self.code is Code.SUCCESS


FITS = PredicateResult(Code.SUCCESS)


@dataclass
class Cycle:
    """One scheduling cycle: the tasks placed so far, as in NodeInfo.Tasks."""

    endpoint: Endpoint
    version: str = "1.14.1"
    tasks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def predicate(self, pod: Mapping[str, Any], node: str = "n1", **task: Any) -> PredicateResult:
        reply = await self.endpoint.post(f"{PREFIX}/vpredicates", self.asked(pod, node, **task))
        assert reply.status == 200
        return as_read_by(self.version, reply.body)

    def asked(self, pod: Mapping[str, Any], node: str = "n1", **task: Any) -> dict[str, Any]:
        here = node_info(node, self.tasks.get(node), self.version)
        return {"task": task_info(pod, self.version, **task), "node": here}

    async def scores(self, pod: Mapping[str, Any], *nodes: str) -> dict[str, float]:
        asked = [node_info(node, self.tasks.get(node), self.version) for node in nodes]
        body = {"task": task_info(pod, self.version), "nodes": asked}
        answer = (await self.endpoint.post(f"{PREFIX}/vprioritize", body)).json
        assert answer["errorMessage"] == ""
        found: dict[str, float] = answer["nodeScore"]
        return found

    def put(self, pod: Mapping[str, Any], node: str = "n1", status: int = ALLOCATED) -> dict[str, Any]:
        """Place a task as Volcano does, only in its memory."""
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        task = task_info(bound, self.version, status=status, node=node)
        self.tasks.setdefault(node, []).append(task)
        return task

    async def allocate(self, pod: Mapping[str, Any], node: str = "n1", status: int = ALLOCATED) -> str:
        """Like 1.13 and later: Volcano reports the task to us, and takes it back if we refuse."""
        task = self.put(pod, node, status)
        why = await self.tell("vallocate", task)
        if why:
            self.tasks[node].remove(task)
            await self.tell("vdeallocate", task)
        return why

    async def tell(self, verb: str, task: Mapping[str, Any]) -> str:
        answer = (await self.endpoint.post(f"{PREFIX}/{verb}", {"task": task})).json
        assert list(answer) == ["errorMessage"]
        why: str = answer["errorMessage"]
        return why


def as_read_by(version: str, body: bytes) -> PredicateResult:
    """An answer as each version's own decoder understands it."""
    answer = msgspec.json.decode(body)
    if version == "1.7.0":
        why = answer["errorMessage"]
        assert isinstance(why, str)
        return PredicateResult(Code.ERROR, why) if why else FITS
    status = answer["status"]
    if version == "1.8.2":
        assert isinstance(status, list)
        bad = [one for one in status if one["Code"]]
        return PredicateResult(Code(bad[0]["Code"]), bad[0]["Reason"]) if bad else FITS
    assert isinstance(status, str)
    return PredicateResult(Code(answer["code"] or 1), status) if status else FITS


def pod_of(name: str, gpu_mem: Any = 3, **fields: Any) -> dict[str, Any]:
    """A pending gpushare pod with its UID, as Volcano's cache has it."""
    return pod_manifest(name, gpu_mem, metadata={"uid": f"uid-{name}", **fields.pop("metadata", {})}, **fields)


def manifest_of(pod: Pod) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(pod)
    return made

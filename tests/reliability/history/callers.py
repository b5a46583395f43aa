"""Schedulers of every kind, some of which misbehave: repeated calls, old node lists, binds that nobody filtered."""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp

from aliquot.apiserver.statuses import StatusError
from aliquot.embedded.api import subresources
from tests.reliability.history.kinds import dialect_of
from tests.reliability.history.machines import Machine
from tests.reliability.history.witness import Pod, node_of
from tests.reliability.history.world import Replica, World

_TIME_OUT = aiohttp.ClientTimeout(total=5.0)
"""kube-scheduler's own for an extender."""
_ALLOCATED = 2
PROBE = "probe"


@dataclass(frozen=True)
class Endpoint:
    name: str
    prefix: str
    filter: str = "filter"
    prioritize: str = ""
    bind: str = ""
    preempt: str = ""


NATIVE = Endpoint("native", "/aliquot", prioritize="prioritize", bind="bind", preempt="preempt")
_ENDPOINTS = {
    "gpushare": Endpoint("gpushare", "/gpushare-scheduler", bind="bind"),
    "elastic": Endpoint("elastic", "/scheduler", prioritize="priorities", bind="bind"),
    "tencent": Endpoint("admission", "/scheduler", filter="predicates", prioritize="priorities"),
    "nvidia": Endpoint(
        "nvidia", "/apis/metrics.nvidia.com/v1alpha1/schedule", prioritize="prioritize", preempt="preempt"
    ),
}


_READS = (
    ("gpushare", "/gpushare-scheduler/inspect"),
    ("elastic", "/scheduler/status"),
    ("native", "/metrics"),
    ("native", "/readyz"),
)


class Caller:
    """One scheduler. What another one is at, it mostly leaves alone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._busy = world.busy
        self._chance = world.chance

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=_TIME_OUT) as session:
            self._session = session
            while True:
                await self._once()
                await asyncio.sleep(self._chance.uniform(0.02, 0.3))

    async def _once(self) -> None:
        world = self._world
        pods = [pod for pod in world.witness.waiting() if not pod["metadata"]["name"].startswith(PROBE)]
        free = [pod for pod in pods if not self._busy[pod["metadata"]["uid"]] or self._misbehaves(0.05)]
        if world.is_paused or not free:
            return
        pod = self._chance.choice(free)
        uid = pod["metadata"]["uid"]
        self._busy[uid] += 1
        try:
            if self._chance.random() < 0.05:
                await self._read()
            await self._schedule(pod)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            world.figures.counts["calls without an answer"] += 1
            if not isinstance(error, aiohttp.ClientConnectorError):
                world.tell(f"a call has no answer: {type(error).__name__}", pod)
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        finally:
            self._busy[uid] -= 1

    async def _schedule(self, pod: Pod) -> None:
        ways = dict(self._world.setup.ways)
        if self._world.is_calm:
            ways.pop("hand", None)
        way = self._chance.choices(list(ways), list(ways.values()))[0]
        if way == "hand":
            self._bind_by_hand(pod)
        elif way == "volcano":
            await self._through_volcano(pod)
        else:
            await self._through(NATIVE if way == "native" else _ENDPOINTS.get(dialect_of(pod), NATIVE), pod)

    async def _read(self) -> None:
        """Somebody looks: whatever is shown, nothing changes by it."""
        endpoint, path = self._chance.choice(_READS)
        async with self._session.get(f"{self._any_replica().server.endpoint(endpoint)}{path}") as response:
            await response.read()
        self._world.figures.counts["reads"] += 1

    # -- kube-scheduler

    async def _through(self, endpoint: Endpoint, pod: Pod) -> None:
        names = self._node_names()
        passed = await self._filter(endpoint, pod, names)
        if endpoint.prioritize and passed and self._chance.random() < 0.7:
            await self._post(endpoint, endpoint.prioritize, {"Pod": pod, "NodeNames": passed})
        if passed and self._misbehaves(0.05):
            passed = names
        if not passed:
            if endpoint.preempt and pod["spec"].get("priority") and self._chance.random() < 0.3:
                await self._preempt(endpoint, pod, names)
            return
        node = self._chance.choice(passed)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.05, 0.5)) * self._chance.random())
        if not endpoint.bind:
            self._bind_plainly(pod, node, endpoint.name)
            return
        await self._bind(endpoint, pod, node)
        if self._misbehaves(0.1):
            await self._bind(endpoint, pod, self._chance.choice(passed))

    async def _filter(self, endpoint: Endpoint, pod: Pod, names: list[str]) -> list[str]:
        answer = await self._post(endpoint, endpoint.filter, {"Pod": pod, "NodeNames": names})
        outcome = "faults" if answer.get("Error") else "fits" if answer.get("NodeNames") else "no room"
        self._world.figures.counts[f"filters: {outcome}"] += 1
        return list(answer.get("NodeNames") or ())

    async def _bind(self, endpoint: Endpoint, pod: Pod, node: str) -> None:
        meta = pod["metadata"]
        asked = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        answer = await self._post(endpoint, endpoint.bind, asked)
        error = answer.get("Error", "")
        self._world.tell(f"bind to {node} through {endpoint.name}: {error or 'accepted'}", pod)
        if error:
            self._world.figures.counts["binds refused"] += 1
        else:
            self._world.figures.binds[endpoint.name] += 1

    async def _preempt(self, endpoint: Endpoint, pod: Pod, names: list[str]) -> None:
        """On each node one pod of lower priority is proposed; whom the server names on one of them is told to end."""
        lower = {
            name: [own for own in self._world.witness.on(name) if not own["spec"].get("priority")] for name in names
        }
        proposed = {
            name: {"Pods": [{"UID": self._chance.choice(pods)["metadata"]["uid"]}], "NumPDBViolations": 0}
            for name, pods in lower.items()
            if pods
        }
        answer = await self._post(endpoint, endpoint.preempt, {"Pod": pod, "NodeNameToMetaVictims": proposed})
        chosen = answer.get("NodeNameToMetaVictims") or {}
        if not chosen or self._world.is_calm:
            return
        node = self._chance.choice(sorted(chosen))
        self._world.figures.counts["preemptions"] += 1
        self._world.tell(f"preempts on {node}", pod)
        for victim in chosen[node]["Pods"]:
            if (own := self._world.witness.pods.get(victim["UID"])) is not None:
                self._world.delete_pod(own, 30)
        self._world.write_status(pod, nominatedNodeName=node)

    async def _post(self, endpoint: Endpoint, verb: str, body: object) -> Any:
        return await self._world.call(
            self._session, self._any_replica(), endpoint.name, f"{endpoint.prefix}/{verb}", body
        )

    def _bind_plainly(self, pod: Pod, node: str, through: str) -> None:
        """By the scheduler itself, which names no cards."""
        if self._world.cluster.faults.in_outage:
            return
        meta = pod["metadata"]
        body = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "target": {"kind": "Node", "name": node}}
        try:
            subresources.bind(self._world.cluster.registry, meta["namespace"], meta["name"], body)
        except StatusError as error:
            self._world.tell(f"plain Binding to {node}: {error.message}", pod)
        else:
            self._world.tell(f"plain Binding to {node} after {through}", pod)
            self._world.figures.binds[through] += 1

    # -- somebody with kubectl

    def _bind_by_hand(self, pod: Pod) -> None:
        serving = [m for m in self._world.machines.values() if m.hands_over(dialect_of(pod))]
        fitting = [m for m in serving if self._world.witness.fits(pod, m)]
        chosen = fitting if fitting and self._chance.random() < 0.7 else serving
        if chosen:
            self._bind_plainly(pod, self._chance.choice(chosen).name, "hand")

    # -- Volcano

    async def _through_volcano(self, pod: Pod) -> None:
        endpoint, prefix = self._chance.choice((("native", "/aliquot"), ("admission", "/scheduler")))
        replica = self._any_replica()
        fitting = []
        for node in self._chance.sample(names := self._node_names(), min(4, len(names))):
            answer = await self._world.call(
                self._session,
                replica,
                endpoint,
                f"{prefix}/vpredicates",
                {"task": _task(pod), "node": self._node(node)},
            )
            if answer.get("code") == 0:
                fitting.append(node)
        if not fitting:
            return
        if self._chance.random() < 0.5:
            body = {"task": _task(pod), "nodes": [self._node(node) for node in fitting]}
            await self._world.call(self._session, replica, endpoint, f"{prefix}/vprioritize", body)
        node = self._chance.choice(fitting)
        event = {"task": _task(pod, node)}
        answer = await self._world.call(self._session, replica, endpoint, f"{prefix}/vallocate", event)
        if answer.get("errorMessage"):
            return
        await asyncio.sleep(self._chance.choice((0.0, 0.3)) * self._chance.random())
        if self._chance.random() < 0.15:
            await self._world.call(self._session, self._any_replica(), endpoint, f"{prefix}/vdeallocate", event)
        else:
            self._bind_plainly(pod, node, "volcano")

    def _node(self, name: str) -> dict[str, Any]:
        tasks = [_task(pod, name, status=32) for pod in self._world.witness.on(name)]
        return {"Name": name, "Idle": {"MilliCPU": 1e9, "Memory": 1e15}, "Tasks": {own["UID"]: own for own in tasks}}

    # -- whom and what

    def _any_replica(self) -> Replica:
        running = [replica for replica in self._world.replicas if replica.runs]
        return self._chance.choice(running or self._world.replicas)

    def _node_names(self) -> list[str]:
        machines = self._world.machines.values()
        now = [m.name for m in machines if self._is_open(m)]
        if self._misbehaves(0.1):  # an old list, or a short one
            everyone = [m.name for m in machines]
            return self._chance.sample(everyone, self._chance.randint(1, len(everyone)))
        return now

    def _is_open(self, machine: Machine) -> bool:
        return machine.is_there and not machine.is_cordoned

    def _misbehaves(self, share: float) -> bool:
        return not self._world.is_calm and self._chance.random() < share


def _task(pod: Pod, node: str = "", status: int = _ALLOCATED) -> dict[str, Any]:
    needs = {"MilliCPU": 0, "Memory": 0}
    uid = pod["metadata"]["uid"]
    placed = node or node_of(pod)
    return {"UID": uid, "NodeName": placed, "Status": status, "InitResreq": needs, "TaskRole": "", "Pod": pod}

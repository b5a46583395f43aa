"""Collects who uses the cards: after each reading, what every container with a part of a card uses of it.

What an ended pod used last is shown nowhere: a container counts while the API server shows that it runs, and while its
card answers.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import structlog

from aliquot.agent.devices import Machine, Usage
from aliquot.agent.node_pods import NodePod
from aliquot.agent.off_loop import off_loop
from aliquot.agent.usage.cgroups import Container
from aliquot.agent.usage.energy import EnergyShares
from aliquot.agent.usage.owners import FindsOwners, Owner
from aliquot.agent.usage.shares import Share, by_container
from aliquot.clock import Clock
from aliquot.model.load import CardLoad, NodeLoad, PodLoad

_log = structlog.get_logger()


@dataclass(frozen=True)
class Part:
    """The part of a card that a container has. On an observed node only the card is known."""

    pod_uid: str
    container: str
    uuid: str
    cores: int = 0
    """Percent."""
    mib: int = 0


@dataclass(frozen=True)
class ContainerUse:
    """What a container uses of a card. `part` is None if it was given none of it, as a privileged container."""

    pod: NodePod
    container: str
    uuid: str
    share: Share
    part: Part | None = None
    joules: float | None = None
    """Its part of the card's energy since it was first seen; None if the card counts none."""

    def runs_among(self, running: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the same container still runs, and not its next start."""
        uid, name = self.pod.metadata.uid, self.container
        return name in running.get(uid, {}) and running[uid][name] == self.pod.running.get(name)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.pod.metadata.uid, self.container, self.uuid


@dataclass(frozen=True)
class Collected:
    """`at` is in seconds since the epoch, 0 before the first collection. `knows_owners` says whether this agent sees
    the processes on the cards, and those of the host."""

    at: float = 0.0
    cards: Mapping[str, Usage] = field(default_factory=dict)
    uses: Sequence[ContainerUse] = ()
    knows_owners: bool = False


class Collector:
    """`pods` are the node's pods, and `parts` what they have been given."""

    def __init__(
        self,
        machine: Machine,
        owners: FindsOwners,
        pods: Callable[[], Iterable[NodePod]],
        parts: Callable[[], Iterable[Part]],
        clock: Clock,
    ) -> None:
        self._owners = owners
        self._pods = pods
        self._parts = parts
        self._clock = clock
        self._energy = EnergyShares()
        self._is_blind = False
        self._latest = Collected()
        self._asked: Mapping[str, float] | None = None
        """When the driver was last asked for the processes of each card."""
        self._read = asyncio.Event()
        self.see_machine(machine)

    def see_machine(self, machine: Machine | None) -> None:
        """What the driver shows; None while there is no driver."""
        self._machine = machine
        self._read.set()

    async def run(self) -> NoReturn:
        """Collect after each reading with news."""
        while True:
            await self._read.wait()
            self._read.clear()
            await self.collect()

    async def collect(self) -> None:
        """Collect, unless the driver has not been asked for processes since."""
        usage = self._machine.usage if self._machine else {}
        asked = {uuid: own.processes.asked_at if own.processes else 0.0 for uuid, own in usage.items()}
        if any(asked.values()) and asked == self._asked:
            return
        self._asked = asked
        at = self._clock.wall_ns() / 1e9
        listed = [each.processes for each in usage.values() if each.processes is not None]
        owners = await off_loop(lambda: self._owners.of(listed)) if listed else None
        self.join(at, usage, owners)

    def join(self, at: float, usage: Mapping[str, Usage], owners: Mapping[int, Owner] | None) -> None:
        """Take what was read at a time, and the owners of the processes."""
        self._say_if_blind(is_blind=bool(usage) and owners is None)
        uses = [] if owners is None else list(self._uses(usage, owners))
        joules = self._energy.count(usage, {use.key: use.share for use in uses})
        uses = [replace(use, joules=joules.get(use.key)) for use in uses]
        self._latest = Collected(at, usage, uses, owners is not None)

    def current(self) -> Collected:
        """The latest collection, without the containers that have ended since."""
        running = self._running()
        return replace(self._latest, uses=[use for use in self._latest.uses if use.runs_among(running)])

    def load(self) -> NodeLoad | None:
        """The record of it; None before the first collection."""
        latest = self.current()
        if not latest.at:
            return None
        cards = {uuid: CardLoad(usage.cores, usage.memory_bytes, usage.watts) for uuid, usage in latest.cards.items()}
        pods: dict[str, dict[str, PodLoad]] = {}
        for use in latest.uses:
            by_card = pods.setdefault(use.pod.metadata.uid, {})
            by_card[use.uuid] = _added(by_card.get(use.uuid), use.share)
        return NodeLoad(latest.at, cards, pods)

    def _uses(self, usage: Mapping[str, Usage], owners: Mapping[int, Owner]) -> Iterator[ContainerUse]:
        pods = {pod.metadata.uid: pod for pod in self._pods()}
        running = self._running()
        parts = {
            (part.pod_uid, part.container, part.uuid): part
            for part in self._parts()
            if part.container in running.get(part.pod_uid, {})
        }
        holders = {Container(uid, running[uid][name]) for uid, name, _ in parts}
        shares = {
            (container.pod_uid, name, uuid): share
            for uuid, own in usage.items()
            for container, share in by_container(own, owners, holders).items()
            for name, known in running.get(container.pod_uid, {}).items()
            if known == container.id
        }
        for key in dict.fromkeys((*parts, *shares)):
            uid, name, uuid = key
            if uuid in usage and usage[uuid].processes is not None:
                idle = Share(cores=None if usage[uuid].cores is None else 0.0)
                yield ContainerUse(pods[uid], name, uuid, shares.get(key, idle), parts.get(key))

    def _running(self) -> Mapping[str, Mapping[str, str]]:
        """The id of each running container, by UID of its pod and by name."""
        return {pod.metadata.uid: pod.running for pod in self._pods() if not pod.ended}

    def _say_if_blind(self, *, is_blind: bool) -> None:
        if is_blind and not self._is_blind:
            _log.warning(
                "this agent does not see the processes of the host, so it cannot tell what each pod uses of its cards",
                what="set hostPID: true in the agent's pod (docs/nodes.md)",
            )
        self._is_blind = is_blind


def _added(known: PodLoad | None, share: Share) -> PodLoad:
    """The load of a pod with one more of its containers."""
    if known is None:
        return PodLoad(share.memory_bytes, share.cores, share.estimated)
    cores = None if known.cores is None or share.cores is None else min(1.0, known.cores + share.cores)
    return PodLoad(known.memory_bytes + share.memory_bytes, cores, known.estimated or share.estimated)

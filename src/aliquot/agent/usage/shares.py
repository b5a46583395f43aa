"""What each container uses of one card.

Where the card samples processes, a container's cores are those of its processes. Where it does not, and under MPS,
which counts clients as their server, the cores are split by memory. That is an estimate, and says so.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aliquot.agent.devices import GpuProcess, Usage
from aliquot.agent.usage.cgroups import Container
from aliquot.agent.usage.owners import Owner

_Owned = tuple[GpuProcess, Owner]


@dataclass(frozen=True)
class Share:
    memory_bytes: int = 0
    cores: float | None = None
    """The container's part of the card's cores, from 0 to 1; None if nobody knows."""
    estimated: bool = False


def by_container(
    usage: Usage, owners: Mapping[int, Owner], holders: Collection[Container] = ()
) -> Mapping[Container, Share]:
    """The shares of the containers with processes on a card. Processes without an owner have ended. `holders` are the
    containers that were given a part of a card."""
    listed = usage.processes.running if usage.processes else ()
    alive = [(process, owners[process.pid]) for process in listed if process.pid in owners]
    servers = _mps_servers(alive, usage.processes.mps_server if usage.processes else None, holders)
    has_samples = any(process.cores is not None for process, _ in alive)
    together = [one for one in alive if one[0].pid not in servers and (one[0].is_mps_client or not has_samples)]
    of_mps = sum(process.cores or 0.0 for process, _ in alive if process.is_mps_client or process.pid in servers)
    cores = {process.pid: _sampled(process, owner) for process, owner in alive} | dict.fromkeys(servers, 0.0)
    cores |= _split(of_mps if has_samples else usage.cores, together)
    guessed = {owner.container for process, owner in together if cores[process.pid] is not None}
    grouped: dict[Container, list[GpuProcess]] = defaultdict(list)
    for process, owner in alive:
        if owner.container is not None:
            grouped[owner.container].append(process)
    return {
        container: Share(
            sum(process.memory_bytes or 0 for process in own),
            _sum(cores[process.pid] for process in own),
            estimated=container in guessed and len(guessed) > 1,
        )
        for container, own in grouped.items()
    }


def _sampled(process: GpuProcess, owner: Owner) -> float | None:
    """A sample from before the process started is that of another one, whose PID it has inherited."""
    return process.cores if process.sampled_since >= owner.started else None


def _mps_servers(alive: Sequence[_Owned], name: str | None, holders: Collection[Container]) -> frozenset[int]:
    """The processes that compute for others, and not for themselves. Everybody can give a process this name: without
    clients it is nobody's server, what a holder of a part computes is its own, and memory counts in any case."""
    if not any(process.is_mps_client for process, _ in alive):
        return frozenset()
    return frozenset(
        process.pid
        for process, owner in alive
        if owner.name == name and not process.is_mps_client and owner.container not in holders
    )


def _split(cores: float | None, together: Sequence[_Owned]) -> Mapping[int, float | None]:
    """The part of each process, by PID: in proportion to memory, or equal parts if nobody has any."""
    weights = {process.pid: process.memory_bytes or 0 for process, _ in together}
    whole = sum(weights.values())
    if cores is None:
        return dict.fromkeys(weights)
    return {pid: cores * (weight / whole if whole else 1 / len(weights)) for pid, weight in weights.items()}


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return min(1.0, total)

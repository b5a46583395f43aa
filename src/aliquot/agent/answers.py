"""Answers to Allocate that carry the devices of a container themselves, for runtimes without CDI.

kubelet keeps each answer in its checkpoint and applies it at every start of the container, also after a reboot. An
annotation of the answer says what the container has got. Users cannot write there. An answer cannot carry hooks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliquot.agent import handover_record
from aliquot.agent.devices import ContainerEdits
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.errors import BadRecord, Refused
from aliquot.model import Slice

_HANDED = "aliquot.io/handed-over"
_READ_AND_WRITE = "rw"
"""Without `m`: the container may not create device nodes."""


@dataclass(frozen=True)
class Answer:
    """What this agent answered for one container. The parts have no index or minor of their cards."""

    dialect: str
    parts: tuple[Slice, ...]
    device_nodes: frozenset[str]
    """Their paths on this machine."""
    naming_cards: frozenset[str]
    """The variables that name a card."""

    def refuse_unless_due(self, whose: str, parts: Sequence[Slice], edits: ContainerEdits) -> None:
        """kubelet will give the container what was answered. Raises Refused if it must get something else."""
        if self.parts != tuple(replace(part, index=-1, minor=-1) for part in parts):
            raise Refused(
                f"{whose} is placed on {_shown(parts)}, but Allocate answered with {_shown(self.parts)}: {_WAY_OUT}"
            )
        if strange := self.device_nodes - {node.host_path for node in edits.device_nodes}:
            raise Refused(
                f"{whose} would get {', '.join(sorted(strange))}, which no longer belongs to its cards: {_WAY_OUT}"
            )


_WAY_OUT = "delete the pod, and its controller creates a new one"


def _shown(parts: Sequence[Slice]) -> str:
    return ", ".join(f"{part.uuid} ({part.cores} % of cores, {part.mib} MiB)" for part in parts) or "no card"


def write(dialect: str, parts: Sequence[Slice], edits: ContainerEdits) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=edits.environment,
        devices=[
            wire.DeviceSpec(container_path=node.path, host_path=node.host_path, permissions=_READ_AND_WRITE)
            for node in edits.device_nodes
        ],
        mounts=[
            wire.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only="ro" in mount.options)
            for mount in edits.mounts
        ],
        annotations={_HANDED: handover_record.write_parts(dialect, parts)},
    )


def read(answered: wire.ContainerAllocateResponse) -> Answer | None:
    """None if another plugin, or a version of this agent that writes another format, has answered."""
    try:
        dialect, parts = handover_record.read_parts(answered.annotations.get(_HANDED, ""))
    except BadRecord:
        return None
    naming = (name for name, value in answered.envs.items() if any(part.uuid in value for part in parts))
    return Answer(dialect, parts, frozenset(node.host_path for node in answered.devices), frozenset(naming))

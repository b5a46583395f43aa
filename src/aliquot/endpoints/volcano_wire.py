"""The requests of Volcano's scheduler to its extender, and the response shapes that its versions expect.

Its structs have no JSON names, so keys are Go's (`Tasks`). A request carries every whole pod on a node, and may be
megabytes, so pods stay bytes until we need them.
"""

from enum import Enum, IntFlag
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from aliquot.endpoints.extender import Id, with_names
from aliquot.endpoints.object_limit import BadCall, Counted, object_limit
from aliquot.model import Pod
from aliquot.model.bounds import LARGEST_AMOUNTS, LARGEST_POD

_T = TypeVar("_T", bound=msgspec.Struct)
_NOTHING = Raw(b"{}")

_EPSILON = 0.1
"""How far Volcano lets a resource fall short."""


class PredicateFormat(Enum):
    """The format of a predicate's answer, by the first version that expects it."""

    MESSAGE = "1.7"
    LIST = "1.8"
    CODE = "1.10"


class Code(Enum):
    """In preempt and reclaim, Volcano continues only with nodes that are UNSCHEDULABLE."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3


class Status(IntFlag):
    """Task states that matter for reservations."""

    ALLOCATED = 2
    PIPELINED = 4
    BINDING = 8
    BOUND = 16
    RELEASING = 64


class Amounts(msgspec.Struct):
    cpu: float = field(name="MilliCPU", default=0)
    memory: float = field(name="Memory", default=0)
    others: dict[str, float] | None = field(name="ScalarResources", default=None)

    def fits(self, idle: "Amounts") -> bool:
        """Report whether Volcano counts this as free now."""
        have = idle.others or {}
        wanted = [(self.cpu, idle.cpu), (self.memory, idle.memory)]
        wanted += [(size, have.get(name, 0)) for name, size in (self.others or {}).items()]
        return all(size < left + _EPSILON for size, left in wanted)


class Task(Counted):
    """A pod, as Volcano sees it; `role` only distinguishes versions."""

    uid: Id = field(name="UID", default="")
    node: Id = field(name="NodeName", default="")
    status: int = field(name="Status", default=0)
    raw_needs: Raw = field(name="InitResreq", default=_NOTHING)
    role: Raw | UnsetType = field(name="TaskRole", default=UNSET)
    raw: Raw = field(name="Pod", default=Raw(b"null"))

    def needs(self) -> Amounts:
        """Raises BadCall."""
        return _amounts("task.InitResreq", self.raw_needs)

    def pod(self) -> Pod:
        """Raises BadCall."""
        size = memoryview(self.raw).nbytes
        if size > LARGEST_POD:
            raise BadCall(f"task.Pod has more than {LARGEST_POD} bytes")
        if bytes(self.raw) == b"null":
            raise BadCall("task.Pod is missing")
        try:
            return with_names(_PODS.decode(self.raw))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadCall(f"cannot decode task.Pod: {error}") from error


class NodeInfo(Counted):
    """A node; `capability`, `gpu_devices` and `capacity` only distinguish versions."""

    name: Id = field(name="Name", default="")
    raw_idle: Raw = field(name="Idle", default=_NOTHING)
    tasks: dict[str, Task] | None = field(name="Tasks", default=None)
    capability: Raw | UnsetType = field(name="Capability", default=UNSET)
    gpu_devices: Raw | UnsetType = field(name="GPUDevices", default=UNSET)
    capacity: Raw | UnsetType = field(name="Capacity", default=UNSET)

    def idle(self) -> Amounts:
        """Raises BadCall."""
        return _amounts("node.Idle", self.raw_idle)


class PredicateCall(msgspec.Struct):
    task: Task
    node: NodeInfo

    @property
    def answer_format(self) -> PredicateFormat | None:
        """The format for the caller's version, which only the fields it sends reveal. None for unknown callers."""
        if self.node.capability is not UNSET or self.node.gpu_devices is not UNSET:
            return PredicateFormat.MESSAGE
        if self.task.role is not UNSET:
            return PredicateFormat.CODE
        return None if self.node.capacity is UNSET else PredicateFormat.LIST


class PrioritizeCall(msgspec.Struct):
    task: Task
    nodes: list[NodeInfo] | None = None


class EventCall(msgspec.Struct):
    task: Task


_PODS = msgspec.json.Decoder(Pod)


def read(body: bytes, kind: type[_T]) -> _T:
    """Raises BadCall."""
    try:
        with object_limit():
            return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadCall(f"cannot decode the body: {error}") from error


def _amounts(what: str, raw: Raw) -> Amounts:
    if memoryview(raw).nbytes > LARGEST_AMOUNTS:
        raise BadCall(f"{what} has more than {LARGEST_AMOUNTS} bytes")
    try:
        return msgspec.json.decode(raw, type=Amounts | None) or Amounts()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadCall(f"cannot decode {what}: {error}") from error


def predicate_answer(answer_format: PredicateFormat | None, code: Code, why: str = "") -> dict[str, object]:
    """Build an answer. Without a format, all versions but 1.8 and 1.9 understand it; those two then refuse the node."""
    match answer_format:
        case PredicateFormat.MESSAGE:
            return {"errorMessage": why}
        case PredicateFormat.LIST:
            return {"status": [{"Code": code.value, "Reason": why}] if why else []}
        case PredicateFormat.CODE:
            return {"status": why, "code": code.value}
        case None:
            return {"errorMessage": why, "status": why, "code": code.value}


def scores_answer(scores: dict[str, float], why: str = "") -> dict[str, object]:
    """Build scores. The map is never null: Volcano up to 1.10 crashes on null."""
    return {"nodeScore": scores, "errorMessage": why}


def event_answer(why: str = "") -> dict[str, object]:
    return {"errorMessage": why}

"""The vendor seam: what the agent asks of the machine's cards. Each vendor has a package that implements it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from aliquot.model import Gpu

_T = TypeVar("_T")


@dataclass(frozen=True)
class DeviceNode:
    """A device node for a container: its path there, and its path on this machine. The container runtime reads the
    other fields from the node on this machine if they are not set."""

    path: str
    host_path: str
    kind: str = ""
    """`c`, `b`, `u` or `p`."""
    major: int | None = None
    minor: int | None = None
    mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that a container sees."""

    container_path: str
    host_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")
    kind: str = ""
    """The type of its file system; empty for a bind mount."""


@dataclass(frozen=True)
class Hook:
    """A program of this machine that the container runtime runs at a stage of a container's life, such as
    `createContainer`."""

    stage: str
    path: str
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True)
class ContainerEdits:
    """What the container runtime adds to a container. Its variables win over those of the image and the pod."""

    environment: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    groups: tuple[int, ...] = ()
    """Ids of further groups of the container's processes."""

    def __add__(self, other: "ContainerEdits") -> "ContainerEdits":
        """Both together. What is in both is there once; the first wins if they name one path or variable twice."""
        return ContainerEdits(
            {**other.environment, **self.environment},
            _first_of_each(self.device_nodes + other.device_nodes, lambda node: node.path),
            _first_of_each(self.mounts + other.mounts, lambda mount: mount.container_path),
            tuple(dict.fromkeys(self.hooks + other.hooks)),
            tuple(dict.fromkeys(self.groups + other.groups)),
        )


def _first_of_each(things: Iterable[_T], name: Callable[[_T], str]) -> tuple[_T, ...]:
    found: dict[str, _T] = {}
    for thing in things:
        found.setdefault(name(thing), thing)
    return tuple(found.values())


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a card, by the number that the driver gives it: its PID on the host."""

    pid: int
    memory_bytes: int | None = None
    cores: float | None = None
    """Its part of the card's cores, from 0 to 1, on average since the reading before."""
    sampled_since: float = 0.0
    """When the oldest sample in `cores` was taken, in seconds since the epoch."""
    is_mps_client: bool = False
    """The driver counts the cores of MPS clients as those of their server."""


@dataclass(frozen=True)
class Processes:
    """The processes on a card. `asked_at` is when the driver was asked, in seconds since boot: a process that started
    later has inherited the PID of one that has ended."""

    asked_at: float = 0.0
    running: tuple[GpuProcess, ...] = ()
    mps_server: str | None = None
    """The name of the process that computes for MPS clients."""


@dataclass(frozen=True)
class Usage:
    """How busy a card is. A card may not know all of it: a MIG instance knows its memory and its processes only."""

    cores: float | None = None
    """The part of the time in which a program ran on it, from 0 to 1."""
    memory_bytes: int | None = None
    """With what the driver keeps for itself."""
    celsius: float | None = None
    watts: float | None = None
    joules: float | None = None
    """Since the driver was loaded, as every count below."""
    core_hertz: int | None = None
    memory_hertz: int | None = None
    corrected_errors: int | None = None
    """ECC errors of its memory."""
    uncorrected_errors: int | None = None
    nvlinks: int | None = None
    """The NVLinks that are up."""
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None
    nvlink_errors: int | None = None
    processes: Processes | None = field(default=None, compare=False)
    """None if the driver does not tell."""


@dataclass(frozen=True)
class Machine:
    """What the driver shows now. `faults` says why a card is unhealthy, by UUID. `absent` are the cards that are off
    the bus: when they come back, they have been reset. `left_out` says, by index, why cards that have never answered
    are not among `gpus`. `usage` has the cards that answer now, by UUID."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    left_out: Mapping[int, str] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)


class Verdict(Enum):
    """What follows from an error of a card."""

    IGNORE = "ignore"
    CORDON = "cordon"
    """No new pods; running pods go on."""
    DRAIN = "drain"
    """The card is unhealthy: no container starts on it."""


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    meaning: str


@dataclass(frozen=True)
class CardError:
    """An error that the driver reports about a card."""

    uuid: str
    code: int


@dataclass(frozen=True)
class OpenWay:
    """Who gets cards past this agent, and what to do about it."""

    who: str
    remedy: str


class DeviceSource(Protocol):
    """The cards of this machine, as their vendor's driver knows them."""

    def read(self) -> Machine:
        """Every card by index, with its health and usage. May block. Raises NoDriver with what to check if there is no
        card to serve, and BadConfig if only a new process can read them."""

    def wait_for_events(self, seconds: float) -> Sequence[CardError]:
        """The errors that the driver reports next, none if none comes within `seconds`. Blocks."""

    def judge(self, code: int) -> Judgement:
        """What follows from an error with this code."""

    @property
    def decisive_variables(self) -> frozenset[str]:
        """Variables that something on this node obeys, so that a container could get other devices by them. Without
        CDI, a pod must not set them itself."""

    @property
    def limited_variables(self) -> frozenset[str]:
        """Variables that list what a container gets besides its cards. Without CDI, a pod may set one itself to a part
        of what our answer lists, and to nothing else."""

    @property
    def open_ways(self) -> Sequence[OpenWay] | None:
        """How containers could get cards on this node without asking for any. None if nobody knows."""

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:
        """What a container needs to use exactly these cards, without hooks if it does not get it through CDI. Raises
        Refused if something of a card is missing."""

    def visible_cards(
        self, edits: ContainerEdits, gpus: Sequence[Gpu] = (), cdi_devices: Sequence[str] = ()
    ) -> frozenset[str]:
        """The UUIDs of the cards that a container sees with these edits, made by this agent or by another device
        plugin, and with these CDI devices of the vendor. `gpus` are the node's cards, which other plugins may name by
        number."""

    def restore_links(self, edits: ContainerEdits, gpus: Sequence[Gpu]) -> None:
        """Make the links in `/dev` again by which another device plugin gave a container these cards: a reboot removes
        them. Raises Refused if that fails."""

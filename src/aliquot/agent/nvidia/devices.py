"""NVIDIA's implementation of the vendor seam."""

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pynvml
import structlog

from aliquot.agent.devices import ContainerEdits, DeviceNode, Judgement, Machine, OpenWay, Verdict
from aliquot.agent.nvidia import mig, xids
from aliquot.agent.nvidia.container_runtime import VISIBLE
from aliquot.agent.nvidia.driver_library import DriverLibrary
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.processes import ProcessLists
from aliquot.agent.nvidia.reader import Reader
from aliquot.agent.nvidia.session import Nvml, Session
from aliquot.agent.nvidia.threads import Threads, Wait, at_most
from aliquot.agent.nvidia.xid_events import XidEvent, XidEvents
from aliquot.errors import Refused
from aliquot.model import Gpu
from aliquot.plain import why

_log = structlog.get_logger()

_VISIBLE_MOUNTS = "/var/run/nvidia-container-devices"
"""Where NVIDIA's plugin mounts a file for each card if it does not use the variable, which then names this folder."""
_NO_CARDS = frozenset(("", "none", "void", _VISIBLE_MOUNTS))
_CDI_KIND = re.compile(r"([a-z0-9-]+\.)*nvidia\.com/[a-z]+")
_ON_CARD = re.compile(r"gpu(?P<card>\d+)|(?:mig)?(?P<parent>[^:]+):\d+|MIG-(?P<older>GPU-[^/]+)/\d+/\d+")
"""Further names: `gpu0` is card 0 in a CDI spec. `0:1`, `mig0:1` and `MIG-GPU-…/1/0` are MIG instances of a card."""
_LINK = re.compile(r"elastic-gpu(?P<control>ctl)?-[0-9a-f]{8}(-(?P<place>\d{1,3}))?")
"""The links of elastic-gpu's agent in /dev. Its older versions do not number them."""
_CONTROL_NODES = (
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvidia-nvswitchctl",
    "nvidia-caps-imex-channels/channel0",
)
"""The driver makes IMEX channel 0 for all programs of a machine. The others keep jobs apart, so nobody gets them."""
_PROCESSES_EVERY = 9.0
"""Seconds: at every second reading of the cards. Each process costs a look at /proc, too."""
_WAIT = at_most(seconds=5.0)
"""A card that has not answered by then is unhealthy."""


class NvidiaDevices:
    """The NVIDIA cards of this machine; `folder` holds their device nodes, `library` knows where NVML is, and
    `injection` where the driver's other files are. `verdicts` on XID errors, by code, come before those of NVIDIA's
    catalogue."""

    def __init__(
        self,
        folder: Path = Path("/dev"),
        library: DriverLibrary | None = None,
        injection: Injection | None = None,
        *,
        verdicts: Mapping[str, Verdict] | None = None,
        nvml: Nvml = pynvml,
        proc: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
        wait: Wait = _WAIT,
        processes_every: float = _PROCESSES_EVERY,
    ) -> None:
        self._folder = folder
        self._library = library or DriverLibrary()
        self._injection = injection
        self._verdicts = verdicts or {}
        self._proc = proc
        session = Session(nvml, proc)
        self._reader = Reader(session, Threads(wait), sysfs, ProcessLists(nvml, proc, processes_every))
        self._events = XidEvents(session, lambda: self._reader.answering)

    def read(self) -> Machine:
        self._library.load()
        machine = self._reader.read()
        if self._injection is not None:
            self._injection.read()
        return machine

    def wait_for_events(self, seconds: float) -> Sequence[XidEvent]:
        """The XID errors that the driver reports next, none if none comes within `seconds`. Blocks."""
        return self._events.wait(seconds)

    def judge(self, code: int) -> Judgement:
        return xids.judge(code, self._verdicts)

    @property
    def decisive_variables(self) -> frozenset[str]:
        return self._injection.decisive_variables if self._injection is not None else frozenset()

    @property
    def limited_variables(self) -> frozenset[str]:
        return self._injection.limited_variables if self._injection is not None else frozenset()

    @property
    def open_ways(self) -> Sequence[OpenWay] | None:
        return self._injection.open_ways if self._injection is not None else None

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:
        """The driver's files, the device nodes of the cards and MIG instances, and the control nodes that there are."""
        cards = dict.fromkeys(name for gpu in gpus for name in self._own_nodes(gpu))
        for card in cards:
            if not (self._folder / card).exists():
                raise Refused(f"the device node {self._folder / card} is missing: is the driver loaded?")
        control = [name for name in _CONTROL_NODES if (self._folder / name).exists()]
        nodes = tuple(DeviceNode(f"/dev/{name}", str(self._folder / name)) for name in [*cards, *control])
        files = self._injection.edits(gpus, with_cdi=with_cdi) if self._injection is not None else ContainerEdits()
        return files + ContainerEdits(device_nodes=nodes)

    def _own_nodes(self, gpu: Gpu) -> tuple[str, ...]:
        card = (f"nvidia{gpu.minor}",)
        if not gpu.parent:
            return card
        instance = self._reader.instance(gpu.uuid)
        if instance is None:
            raise Refused(f"the driver does not list the MIG instance {gpu.uuid}")
        return card + mig.capability_nodes(instance, self._proc)

    def visible_cards(
        self, edits: ContainerEdits, gpus: Sequence[Gpu] = (), cdi_devices: Sequence[str] = ()
    ) -> frozenset[str]:
        """NVIDIA's runtime reads names from a variable, from mounts below a folder, or from CDI devices. Without any,
        the device nodes tell: gpu-manager gives them directly, and elastic-gpu through symbolic links."""
        return visible_cards(edits, gpus, cdi_devices) or self._with_nodes(edits, gpus)

    def restore_links(self, edits: ContainerEdits, gpus: Sequence[Gpu]) -> None:
        """elastic-gpu's agent makes its links in PreStart: for each card in the order of the pod's annotation, and for
        the control node."""
        for name in (Path(node.host_path).name for node in edits.device_nodes):
            match, link = _LINK.fullmatch(name), self._folder / name
            if match is None or link.is_symlink():
                continue
            place = int(match["place"] or 0)
            if place >= len(gpus):
                raise Refused(f"the container would get {link}, but its placement has {len(gpus)} cards")
            target = "nvidiactl" if match["control"] else f"nvidia{gpus[place].minor}"
            try:
                link.symlink_to(self._folder / target)
            except FileExistsError:
                continue
            except OSError as error:
                raise Refused(
                    f"{link}, which another device plugin gave, cannot be made again: {why(error)}"
                ) from error
            _log.info("made a link of another device plugin again", link=str(link), target=target)

    def _with_nodes(self, edits: ContainerEdits, gpus: Sequence[Gpu]) -> frozenset[str]:
        names = {(self._folder / Path(node.host_path).name).resolve().name for node in edits.device_nodes}
        return frozenset(gpu.uuid for gpu in gpus if f"nvidia{gpu.minor}" in names and not gpu.parent)


def visible_cards(edits: ContainerEdits, gpus: Sequence[Gpu] = (), cdi_devices: Sequence[str] = ()) -> frozenset[str]:
    """The cards that edits and CDI devices name by UUID, by index, or with `all`. The number of a MIG instance stands
    for every instance of its card, because it changes when others come and go."""
    mounted = (Path(mount.container_path) for mount in edits.mounts)
    names = [
        *edits.environment.get(VISIBLE, "").split(","),
        *(path.name for path in mounted if str(path.parent) == _VISIBLE_MOUNTS),
        *(name for kind, _, name in (device.partition("=") for device in cdi_devices) if _CDI_KIND.fullmatch(kind)),
    ]
    named = {uuid for name in names for uuid in _meant(name, gpus)} - _NO_CARDS
    return frozenset(gpu.uuid for gpu in gpus) if "all" in named else frozenset(named)


def _meant(name: str, gpus: Sequence[Gpu]) -> Set[str]:
    numbers = {str(gpu.index): gpu.uuid for gpu in gpus if not gpu.parent}
    match = _ON_CARD.fullmatch(name)
    if match is None or match["card"]:
        number = match["card"] if match else name
        return {numbers.get(number, name)}
    card = match["parent"] or match["older"]
    return {gpu.uuid for gpu in gpus if gpu.parent and gpu.parent == numbers.get(card, card)} or {name}

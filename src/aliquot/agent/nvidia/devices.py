"""NVIDIA's implementation of the vendor seam."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aliquot.agent.devices import ContainerEdits, DeviceNode, Machine
from aliquot.agent.nvidia import nvml
from aliquot.errors import Refused
from aliquot.model import Gpu

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class NvidiaDevices:
    """The NVIDIA cards of this machine; `folder` holds their device nodes."""

    def __init__(self, folder: Path = Path("/dev")) -> None:
        self._folder = folder

    def read(self) -> Machine:
        return Machine(nvml.cards())

    def edits(self, gpus: Sequence[Gpu]) -> ContainerEdits:
        """The cards' own device nodes, and those control nodes that this machine has."""
        cards = [f"nvidia{gpu.minor}" for gpu in gpus]
        for card in cards:
            if not (self._folder / card).exists():
                raise Refused(f"the device node {self._folder / card} is missing: is the driver loaded?")
        control = [name for name in _CONTROL_NODES if (self._folder / name).exists()]
        nodes = tuple(DeviceNode(f"/dev/{name}", str(self._folder / name)) for name in cards + control)
        return ContainerEdits(device_nodes=nodes)

    def visible_cards(self, environment: Mapping[str, str]) -> frozenset[str]:
        return visible_cards(environment)


def visible_cards(environment: Mapping[str, str]) -> frozenset[str]:
    return frozenset(filter(None, environment.get(_VISIBLE, "").split(",")))

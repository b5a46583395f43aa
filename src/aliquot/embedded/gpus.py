"""Simulated cards for hollow nodes."""

import uuid
from collections.abc import Sequence

from aliquot.agent.devices import ContainerEdits, DeviceNode, Machine
from aliquot.agent.nvidia import visible_cards
from aliquot.errors import BadConfig
from aliquot.model import Gpu

MODELS = {
    "Tesla T4": 15360,
    "Tesla V100-SXM2-32GB": 32768,
    "NVIDIA A10": 23028,
    "NVIDIA A100-SXM4-40GB": 40960,
    "NVIDIA A100-SXM4-80GB": 81920,
    "NVIDIA H100 80GB HBM3": 81559,
}
"""Well-known cards and their memory in MiB, as NVML reports it."""


class SimulatedGpus:
    """Simulated cards of the given models. A node name always gives the same UUIDs. Raises BadConfig."""

    def __init__(self, node: str, models: Sequence[str]) -> None:
        if unknown := sorted(set(models) - MODELS.keys()):
            raise BadConfig(f"no simulated card is called {', '.join(unknown)}; there are {', '.join(MODELS)}")
        self._cards = tuple(
            Gpu(
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}.aliquot.io')}",
                index=index,
                # not the index: machines differ there, and code that mixes the two up should be seen
                minor=len(models) - 1 - index,
                model=model,
                mib=MODELS[model],
            )
            for index, model in enumerate(models)
        )

    def read(self) -> Machine:
        return Machine(self._cards)

    def edits(self, gpus: Sequence[Gpu]) -> ContainerEdits:
        paths = [*(f"/dev/nvidia{gpu.minor}" for gpu in gpus), "/dev/nvidiactl"]
        return ContainerEdits(device_nodes=tuple(DeviceNode(path, path) for path in paths))

    def visible_cards(
        self, edits: ContainerEdits, gpus: Sequence[Gpu] = (), cdi_devices: Sequence[str] = ()
    ) -> frozenset[str]:
        return visible_cards(edits, gpus, cdi_devices)

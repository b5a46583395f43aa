"""Cards that exist only here: NVML's part for hollow nodes."""

import uuid
from collections.abc import Sequence
from pathlib import Path

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
"""A few well-known cards and their memory in MiB, as NVML reports it."""


class SimulatedNvml:
    """Cards of the given models, in any mix; the same node name always gives the same uuids. Raises BadConfig."""

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

    def cards(self) -> tuple[Gpu, ...]:
        return self._cards

    def make_device_nodes(self, folder: Path) -> None:
        """Plain files where a real machine has device nodes, so that paths can be checked."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("nvidiactl", *(f"nvidia{gpu.minor}" for gpu in self._cards)):
            (folder / name).touch()

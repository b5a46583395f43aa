"""The metrics of other exporters of NVIDIA's cards, with their names, labels and units, so that dashboards go on."""

from collections.abc import Mapping

from aliquot.agent.metrics import Exporter
from aliquot.agent.nvidia.exporters import dcgm, elastic_gpu, gpu_manager, hami

EXPORTERS: Mapping[str, Exporter] = {
    "gpu-manager": gpu_manager.metrics,
    "elastic-gpu-exporter": elastic_gpu.metrics,
    "hami": hami.metrics,
    "dcgm": dcgm.metrics,
}

__all__ = ["EXPORTERS"]

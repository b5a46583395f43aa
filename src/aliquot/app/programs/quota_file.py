"""The JSON file of gpu-admission's `--config`: where the quotas are, and which labels they go by."""

from pathlib import Path

import msgspec

from aliquot.config import Given
from aliquot.errors import BadConfig
from aliquot.plain import why


class QuotaFile(msgspec.Struct, rename="pascal"):
    """The original's two labels have names in capitals; both must be given, as there."""

    quota_config_map_name: str = "gpuquota"
    quota_config_map_namespace: str = "kube-system"
    model_label: str = msgspec.field(name="GPUModelLabel", default="")
    pool_label: str = msgspec.field(name="GPUPoolLabel", default="")
    skip_bind_time: int = 0


def read_quota_file(path: str) -> dict[str, Given]:
    """Keys of the configuration by path. Raises BadConfig."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=QuotaFile)
    except (OSError, msgspec.DecodeError) as error:
        raise BadConfig(f"--config {path} cannot be used: {why(error)}") from error
    if not (found.model_label and found.pool_label):
        raise BadConfig(f"--config {path}: GPUModelLabel and GPUPoolLabel must both be given")
    values = {
        "quota.name": found.quota_config_map_name or "gpuquota",
        "quota.namespace": found.quota_config_map_namespace or "kube-system",
        "quota.modelLabel": found.model_label,
        "quota.poolLabel": found.pool_label,
    }
    return {key: Given(value, f"--config {path}") for key, value in values.items()}

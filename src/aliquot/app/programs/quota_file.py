"""The JSON file of gpu-admission's `--config`: the ConfigMap with the quotas, and the node labels they use."""

from pathlib import Path

import msgspec

from aliquot.config.declaration import Given
from aliquot.errors import BadConfig
from aliquot.plain import why


class QuotaFile(msgspec.Struct, rename="pascal"):
    """The fields of the file. As in the original, both labels are required."""

    quota_config_map_name: str = "gpuquota"
    quota_config_map_namespace: str = "kube-system"
    model_label: str = msgspec.field(name="GPUModelLabel", default="")
    pool_label: str = msgspec.field(name="GPUPoolLabel", default="")
    skip_bind_time: int = 0


def read_quota_file(path: str) -> dict[str, Given]:
    """The keys of the configuration that the file sets. Raises BadConfig."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=QuotaFile)
    except (OSError, msgspec.DecodeError) as error:
        raise BadConfig(f"--config {path} is invalid: {why(error)}") from error
    if not (found.model_label and found.pool_label):
        raise BadConfig(f"--config {path}: GPUModelLabel and GPUPoolLabel are required")
    values = {
        "quota.name": found.quota_config_map_name or "gpuquota",
        "quota.namespace": found.quota_config_map_namespace or "kube-system",
        "quota.modelLabel": found.model_label,
        "quota.poolLabel": found.pool_label,
    }
    return {key: Given(value, f"--config {path}") for key, value in values.items()}

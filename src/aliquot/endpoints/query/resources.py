"""The resources of the query API: those of both versions of nvidia-gpu-scheduler, and one for tenants."""

from dataclasses import dataclass

from aliquot.apiserver.resources import ServedResource
from aliquot.endpoints.query import columns

VERBS = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class QueryResource(ServedResource):
    verbs: tuple[str, ...] = VERBS
    typed_items: bool = True
    stored_as: str = ""
    """The collection with the same objects of another version."""
    original_key: str = ""
    """The key of the object in the original's frames of a watch; empty if the original has no such resource."""

    @property
    def collection(self) -> str:
        return self.stored_as or f"{self.plural}.{self.group}"


_CATEGORIES = ("gpu",)
_NODE_FIELDS = ("spec.device_node", "status.node_health")
_POD_FIELDS = ("spec.node_name", "spec.pod_name", "spec.pod_namespace")

GPU_INFOS = QueryResource(
    "gpuinfos",
    "GpuInfo",
    "metrics.nvidia.com",
    "v1alpha1",
    namespaced=False,
    fields=_NODE_FIELDS,
    table=columns.NODES,
    short_names=("gpui",),
    categories=_CATEGORIES,
    original_key="Object",
)
POD_RESOURCES = QueryResource(
    "podresources",
    "PodResource",
    "metrics.nvidia.com",
    "v1alpha1",
    namespaced=False,
    fields=_POD_FIELDS,
    table=columns.PODS,
    short_names=("podres",),
    categories=_CATEGORIES,
    original_key="Object",
)
GPU_NODES = QueryResource(
    "gpunodes",
    "GpuNode",
    "nvidia-gpu-scheduler",
    "v1",
    namespaced=False,
    fields=_NODE_FIELDS,
    table=columns.NODES,
    stored_as=GPU_INFOS.collection,
    original_key="GpuNode",
)
GPU_PODS = QueryResource(
    "gpupods",
    "GpuPod",
    "nvidia-gpu-scheduler",
    "v1",
    namespaced=False,
    fields=_POD_FIELDS,
    table=columns.PODS,
    stored_as=POD_RESOURCES.collection,
    original_key="GpuPod",
)
POD_GPUS = QueryResource(
    "podgpus",
    "PodGpu",
    "gpu.aliquot.io",
    "v1alpha1",
    fields=_POD_FIELDS,
    table=columns.TENANTS_PODS,
    short_names=("pg",),
    categories=_CATEGORIES,
)

RESOURCES = (GPU_INFOS, POD_RESOURCES, GPU_NODES, GPU_PODS, POD_GPUS)
BY_PATH = {(each.group, each.version, each.plural): each for each in RESOURCES}

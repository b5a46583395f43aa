"""The demo's sample pods: one per dialect, written as users of that dialect write theirs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from aliquot.app.demo import namespaces
from aliquot.dialects import Dialect
from aliquot.kube import PODS, Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object, Pod

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KINDS: dict[str, ApiResource[Any]] = {
    "Pod": PODS,
    "Deployment": ApiResource("apis/apps/v1", "deployments", Object, namespaced=True),
    "Job": ApiResource("apis/batch/v1", "jobs", Object, namespaced=True),
}


@dataclass(frozen=True)
class Sample:
    """The sample workload of a dialect, and the pod that it creates."""

    dialect: Dialect

    @property
    def name(self) -> str:
        metadata = self.dialect.sample_pod()["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def pod_among(self, pods: Iterable[Pod]) -> Pod | None:
        """The sample's pod, or None. Controllers append a suffix to the name."""
        own = (pod for pod in pods if pod.key == self.name or pod.key.startswith(f"{self.name}-"))
        return next((pod for pod in own if not pod.ended and self.dialect.speaks(pod)), None)

    def runs_among(self, pods: Iterable[Pod]) -> bool:
        """Whether the sample's pod runs and has its cards."""
        pod = self.pod_among(pods)
        return pod is not None and pod.status.phase == "Running" and self.dialect.handed_over(pod)


def all_run(samples: Iterable[Sample], pods: Iterable[Pod]) -> bool:
    seen = list(pods)
    return all(sample.runs_among(seen) for sample in samples)


async def create(client: Client, samples: Iterable[Sample]) -> None:
    for sample in samples:
        manifest = sample.dialect.sample_workload()
        namespace = manifest["metadata"]["namespace"]
        await namespaces.ensure(client, namespace)
        await client.create(_KINDS[manifest["kind"]], _as_applied(manifest), namespace)


def _as_applied(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as `kubectl apply` would create it, so that applying the example again gives no warning."""
    annotations = manifest["metadata"].get("annotations") or {}
    applied = {**manifest, "metadata": {"annotations": {}, **manifest["metadata"]}}
    text = msgspec.json.encode(applied, order="sorted").decode() + "\n"
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {**annotations, _LAST_APPLIED: text}}}

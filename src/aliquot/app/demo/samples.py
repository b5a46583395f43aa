"""The demo's sample pods: one per dialect, written as users of that dialect write theirs, and those of what some
machines can do."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from aliquot.app.demo import namespaces
from aliquot.app.demo.machines import Machine
from aliquot.dialects import Dialect, Dialects
from aliquot.dialects.protocol import sample
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
    """The sample workload of a dialect and the pod that it creates, or another pod of that dialect."""

    dialect: Dialect
    another: Mapping[str, Any] | None = None

    @property
    def pod(self) -> Mapping[str, Any]:
        return self.another or self.dialect.sample_pod()

    @property
    def workload(self) -> Mapping[str, Any]:
        return self.another or self.dialect.sample_workload()

    @property
    def name(self) -> str:
        metadata = self.pod["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def pod_among(self, pods: Iterable[Pod]) -> Pod | None:
        """The sample's pod, or None. Controllers append a suffix to the name."""
        own = (pod for pod in pods if pod.key == self.name or pod.key.startswith(f"{self.name}-"))
        return next((pod for pod in own if not pod.ended and self.dialect.speaks(pod)), None)

    def runs_among(self, pods: Iterable[Pod]) -> bool:
        """Whether the sample's pod runs and has its cards."""
        pod = self.pod_among(pods)
        return pod is not None and pod.status.phase == "Running" and self.dialect.handed_over(pod)


@dataclass(frozen=True)
class _Ability:
    """What some machines of a dialect can do, and a pod that asks for it."""

    dialect: str
    pod: Mapping[str, Any]
    has: Callable[[Machine], bool]


_HALVES = {"aliquot.io/cores": "50", "aliquot.io/memory": "20Gi", "aliquot.io/topology": "nvlink"}
_PAIR = sample("linked-pair", {"aliquot.io/gpu": "2"}, annotations=_HALVES)
_INSTANCE = sample("mig-instance", {"nvidia.com/mig-1g.10gb": "1"})
_ABILITIES = (
    _Ability("aliquot", _PAIR, lambda machine: machine.has_nvlinks),
    _Ability("nvidia", _INSTANCE, lambda machine: bool(machine.mig)),
)


def of_machines(dialects: Dialects, machines: Collection[Machine]) -> Iterator[Sample]:
    """A sample of each dialect that these machines serve, and of what they can do."""
    for dialect in dialects.values():
        serving = [machine for machine in machines if dialect.name in machine.dialects]
        if serving:
            yield Sample(dialect)
        for ability in _ABILITIES:
            if ability.dialect == dialect.name and any(map(ability.has, serving)):
                yield Sample(dialect, ability.pod)


def all_run(samples: Iterable[Sample], pods: Iterable[Pod]) -> bool:
    seen = list(pods)
    return all(sample.runs_among(seen) for sample in samples)


async def create(client: Client, samples: Iterable[Sample]) -> None:
    for each in samples:
        manifest = each.workload
        namespace = manifest["metadata"]["namespace"]
        await namespaces.ensure(client, namespace)
        await client.create(_KINDS[manifest["kind"]], _as_applied(manifest), namespace)


def _as_applied(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest as `kubectl apply` would create it, so that applying the example again gives no warning."""
    annotations = manifest["metadata"].get("annotations") or {}
    applied = {**manifest, "metadata": {"annotations": {}, **manifest["metadata"]}}
    text = msgspec.json.encode(applied, order="sorted").decode() + "\n"
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": {**annotations, _LAST_APPLIED: text}}}

"""Allocate on a node whose runtime has no CDI: the answer itself must carry the devices.

kubelet does not say for which pod it asks. So the agent answers only if the answer is right for every pod that it may
be: each pod of this node of which the next container to get this resource asks for as many ids. kubelet admits one pod
after another, and its PodResources API lists a pod from its admission on, so mostly a single pod is left. Otherwise
the agent waits a moment, for example for a placement, and then returns an error. kubelet fails that pod for good, and
its controller creates a new one.

PreStart checks later that the right pod got the answer.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from aliquot.agent import answers
from aliquot.agent.container_edits import edits_beside, edits_of, resources_before
from aliquot.agent.devices import ContainerEdits, DeviceSource
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.off_loop import off_loop
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.clock import Clock
from aliquot.dialects import Dialect, Dialects, demand_of, placement_of
from aliquot.errors import AliquotError, Refused
from aliquot.kube import PODS, Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.kubernetes import Container
from aliquot.model.quantity import whole

PATIENCE = 10.0
"""How many seconds an Allocate waits. kubelet sets no limit, but it admits no other pod meanwhile."""
_LONGEST, _SHARE = 30.0, 0.2
"""All calls together wait for this many seconds, and then for this share of the time: a user whose pods nobody places
must not keep kubelet from all others."""
_LOOK_SECONDS = 2.0
"""How often it looks again though no pod has changed: kubelet's records change, too."""


class KnowsAdmissions(Protocol):
    """Knows how far kubelet's admission of pods is: `kubelet_records.KubeletRecords`."""

    async def granted(self, resource: str) -> Set[tuple[str, str]]: ...

    async def listed(self) -> Set[str] | None: ...


@dataclass(frozen=True)
class _Candidate:
    """A pod for which kubelet may ask, and the container that is next to get the resource."""

    pod: Pod
    container: Container


class AllocateAnswers:
    """Answers Allocate for every resource of the served dialects."""

    def __init__(
        self,
        served: Sequence[Dialect],
        dialects: Dialects,
        kubelet: KnowsAdmissions,
        pods: NodePods,
        cards: NodeCards,
        devices: DeviceSource,
        client: Client,
        clock: Clock,
    ) -> None:
        self._before = {name: before for dialect in served for name, before in resources_before(dialect)}
        self._dialects = dialects
        self._kubelet = kubelet
        self._pods = pods
        self._cards = cards
        self._devices = devices
        self._client = client
        self._clock = clock
        self._saved, self._saved_at = _LONGEST, clock.monotonic()

    async def allocate(self, resource: str, ids: Set[str]) -> wire.ContainerAllocateResponse:
        """Raises AliquotError with the text for the pod's status."""
        began = self._clock.monotonic()
        self._saved = min(_LONGEST, self._saved + _SHARE * (began - self._saved_at))
        try:
            return await self._wait_for_answer(resource, ids, began + min(PATIENCE, self._saved))
        finally:
            self._saved_at = self._clock.monotonic()
            self._saved = max(0.0, self._saved - (self._saved_at - began))

    async def _wait_for_answer(self, resource: str, ids: Set[str], deadline: float) -> wire.ContainerAllocateResponse:
        while True:
            try:
                candidates = await self._candidates(resource, len(ids))
                return await off_loop(partial(self._answer, resource, len(ids), candidates, self._cards.current))
            except AliquotError:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise
                await self._pods.wait_for_change(min(left, _LOOK_SECONDS), self._clock)

    async def _candidates(self, resource: str, amount: int) -> Sequence[_Candidate]:
        """The pod for which kubelet asks is always among them: the list from the API server is no older than kubelet's.
        Raises KubeError, Refused or BadRecord if somebody does not answer."""
        here = {"fieldSelector": f"spec.nodeName={self._cards.current.node}"}
        pods = (await self._client.list(PODS, selector=here)).items
        granted = await self._kubelet.granted(resource)
        found = [
            _Candidate(pod, container)
            for pod in pods
            if not (pod.ended or pod.metadata.deletion_timestamp)
            and (container := _next(pod, resource, amount, granted)) is not None
        ]
        listed = await self._kubelet.listed()
        return [each for each in found if listed is not None and each.pod.key in listed] or found

    def _answer(
        self, resource: str, amount: int, candidates: Sequence[_Candidate], cards: NodeGpus
    ) -> wire.ContainerAllocateResponse:
        """The answer that is right for all of them. Reads the driver's files and may block. Raises Refused."""
        if not candidates:
            raise Refused(f"no pod of this node waits for {amount} {resource}")
        found = [self._try(each, resource, cards) for each in candidates]
        first = found[0]
        if isinstance(first, AliquotError) or any(other != first for other in found):
            if len(found) == 1:
                raise Refused(str(first))
            named = ", ".join(self._shown(*each) for each in zip(candidates, found, strict=True))
            raise Refused(
                f"kubelet does not say which of these pods it starts with {amount} {resource}, and the container "
                f"runtime has no CDI: {named}"
            )
        return first

    def _shown(self, candidate: _Candidate, found: wire.ContainerAllocateResponse | AliquotError) -> str:
        if isinstance(found, AliquotError):
            return f"{candidate.pod.key} ({found})"
        cards = sorted(self._devices.visible_cards(ContainerEdits(dict(found.envs))))
        return f"{candidate.pod.key} (placed on {', '.join(cards) or 'no card'})"

    def _try(
        self, candidate: _Candidate, resource: str, cards: NodeGpus
    ) -> wire.ContainerAllocateResponse | AliquotError:
        """The answer that is right for a candidate, or why there is none."""
        try:
            return self._answer_for(candidate.pod, candidate.container, resource, cards)
        except AliquotError as error:
            return error

    def _answer_for(
        self, pod: Pod, container: Container, resource: str, cards: NodeGpus
    ) -> wire.ContainerAllocateResponse:
        demand = demand_of(pod, self._dialects)
        if demand is None:
            raise Refused(f"pod {pod.key} requests no GPU")
        placement = placement_of(pod, demand, cards)
        if container.asks_any(self._before[resource].__contains__):
            return answers.write(placement.dialect, (), edits_beside(resource))
        edits = edits_of(container.name, pod, demand, placement, cards, self._devices, with_cdi=False)
        return answers.write(placement.dialect, placement.containers[container.name], edits)


def _next(pod: Pod, resource: str, amount: int, granted: Set[tuple[str, str]]) -> Container | None:
    """The next container of a pod that gets a resource, if it asks for this amount: kubelet asks for one container
    after another, and writes its checkpoint after each."""
    for container, _ in pod.containers():
        asked = whole(str(container.limits.get(resource, 0)))
        if asked and (pod.metadata.uid, container.name) not in granted:
            return container if asked == amount else None
    return None

"""On an observed node another vendor's plugin hands out the cards: the agent records on each pod which ones kubelet
says it has."""

from typing import NoReturn

import structlog

from aliquot.agent import observed_record
from aliquot.agent.node_pods import NodePods
from aliquot.agent.podresources import PodResources
from aliquot.clock import Clock
from aliquot.dialects import Dialects
from aliquot.errors import AliquotError
from aliquot.kube import Client, Invalid, KubeError, NotFound

_log = structlog.get_logger()
_LOOK_SECONDS = 10.0
_RETRY_SECONDS = 2.0


class Observer:
    """Keeps the records of this node's pods true. A pod gets its record when a container with cards has started: from
    then on kubelet's answer is about this pod, and not about a namesake that was deleted by force."""

    def __init__(
        self, dialects: Dialects, pod_resources: PodResources, pods: NodePods, client: Client, clock: Clock
    ) -> None:
        self._watched = [dialect for dialect in dialects.values() if not dialect.names_cards]
        self._pod_resources = pod_resources
        self._pods = pods
        self._client = client
        self._clock = clock
        self._trouble = ""

    async def run(self) -> NoReturn:
        while True:
            try:
                await self.look()
            except AliquotError as error:
                self._warn(str(error))
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                self._trouble = ""
                await self._pods.wait_for_change(_LOOK_SECONDS, self._clock)

    async def look(self) -> None:
        """Compare every pod once, and write the records that differ. Raises Refused if kubelet does not answer, and
        KubeError after it has tried every pod."""
        started = {pod.key: pod for pod in self._pods.all() if not pod.ended and pod.has_run(self._is_observed)}
        listed = await self._pod_resources.cards(self._card_in) if started else ()
        trouble: KubeError | None = None
        for key, pod in started.items():
            # two pods of one name: the older one was deleted by force and is still ending
            entries = [entry for entry in listed if entry.pod == key]
            if len(entries) == 1 and entries[0].containers:
                try:
                    await observed_record.write(self._client, pod, entries[0].containers)
                except (NotFound, Invalid):
                    continue  # the pod is gone
                except KubeError as error:
                    trouble = error
        if trouble is not None:
            raise trouble

    def _is_observed(self, resource: str) -> bool:
        return any(dialect.guards(resource) for dialect in self._watched)

    def _card_in(self, resource: str, device_id: str) -> str:
        return next((dialect.card_in(device_id) for dialect in self._watched if dialect.guards(resource)), "")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("cannot record which cards pods have, retrying", error=trouble)
        self._trouble = trouble

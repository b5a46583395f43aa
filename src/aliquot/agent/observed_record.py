"""The record of the cards that another device plugin gave to a pod: the agent writes it on the pod, for the server."""

from collections.abc import Mapping, Sequence

import structlog

from aliquot.errors import BadRecord
from aliquot.kube import PODS, Client
from aliquot.model import Pod
from aliquot.model.records import OBSERVED, read_observed, write_observed

_log = structlog.get_logger()


async def write(client: Client, pod: Pod, cards: Mapping[str, Sequence[str]]) -> None:
    """Record the cards of each container, unless the pod says so already. Raises KubeError."""
    record, own = write_observed(pod.metadata.uid, cards), pod.metadata
    if own.annotations.get(OBSERVED) != record:
        body = {"metadata": {"annotations": {OBSERVED: record}}}
        await client.patch(PODS, own.name, body, namespace=own.namespace, uid=own.uid)
        _log.info("recorded the cards that another device plugin gave to a pod", pod=pod.key, cards=cards)


def cards_on(pod: Pod) -> Mapping[str, Sequence[str]]:
    """The cards of each container in a pod's record; none if it has no record that can be read."""
    try:
        return read_observed(pod.metadata.uid, pod.metadata.annotations.get(OBSERVED, ""))
    except BadRecord:
        return {}

"""Pods that run, end and go when a test says so, without a node."""

from collections.abc import Callable

from aliquot.apiserver.objects import Object, key_of, text_at
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.resources import PODS


class Kubelet:
    """Stands in for every node at once."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def pods(self, phase: str = "") -> list[Object]:
        held = [stored.obj for stored in self._cluster.store.snapshot(PODS.collection)]
        return [pod for pod in held if phase in ("", text_at(pod, "status", "phase"))]

    def living(self) -> list[Object]:
        ended = ("Succeeded", "Failed")
        return [pod for pod in self.pods() if text_at(pod, "status", "phase") not in ended]

    def run_all(self) -> None:
        """Every pending pod runs and is ready."""
        for pod in self.pods("Pending"):
            self.tell(pod, "Running")

    def tell(self, pod: Object, phase: str) -> None:
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        self._rewrite(pod, lambda obj: {**obj, "status": {**obj["status"], "phase": phase, "conditions": [ready]}})

    def bind(self, pod: Object) -> None:
        self._rewrite(pod, lambda obj: {**obj, "spec": {**obj["spec"], "nodeName": "node-1"}})

    def finish_deleted(self) -> None:
        """The containers of deleted pods have ended."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self._cluster.registry.delete(PODS, *key_of(pod), DeleteRequest(grace_seconds=0))

    def _rewrite(self, pod: Object, change: Callable[[Object], Object]) -> None:
        self._cluster.registry.rewrite(PODS, *key_of(pod), change)

"""Jobs: run pods until enough of them have succeeded or too many have failed.

It replaces a failed pod at once. The real controller backs off.
"""

from datetime import timedelta

from aliquot.apiserver.objects import Object, dig, key_of, moment_of, text_at, timestamp, with_metadata
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.ownership import controller_uid
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import JOBS, PODS
from aliquot.embedded.controllers.children import has_ended, is_active, is_leaving, least_useful_first, new_pod, owned
from aliquot.embedded.controllers.job_status import end_of, finished_at, with_counts, with_end
from aliquot.embedded.controllers.pod_making import PodMaker

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that are not counted yet, so that each pod is counted exactly once."""


class OrphanedPods:
    """Removes the finalizer from pods whose Job is gone."""

    collection = PODS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, pod: Object) -> None:
        if self._registry.store.find(controller_uid(pod)) is None:
            let_go(self._registry, pod)


class JobController:
    collection = JOBS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._maker = PodMaker(registry, "job-controller")

    def sync(self, job: Object) -> float | None:
        if is_leaving(job):
            return None
        pods = owned(self._registry.store, job, PODS)
        if finished_at(job) is not None:
            return self._clean_up(job, pods)
        job = self._count(job, pods)
        now = self._registry.clock()
        reached = end_of(job, self._active(job), now)
        if reached is not None:
            self._stop(self._active(job))
            self._write(with_end(job, reached, now))
            return 0.0
        try:
            self._adjust(job)
        finally:
            self._write(with_counts(job, self._active(job), now))
        return self._seconds_to_deadline(job)

    def _active(self, job: Object) -> list[Object]:
        return [pod for pod in owned(self._registry.store, job, PODS) if is_active(pod)]

    def _write(self, job: Object) -> None:
        self._registry.rewrite(JOBS, *key_of(job), lambda obj: {**obj, "status": job["status"]})

    def _count(self, job: Object, pods: list[Object]) -> Object:
        """The Job with newly ended pods counted. A pod that was deleted early has failed."""
        status = {"startTime": timestamp(self._registry.clock()), **job.get("status", {})}
        if dig(job, "spec", "suspend"):
            del status["startTime"]
        for pod in pods:
            if not tracked(pod) or not (has_ended(pod) or _is_gone(pod)):
                continue
            count = "succeeded" if dig(pod, "status", "phase") == "Succeeded" else "failed"
            status[count] = status.get(count, 0) + 1
            let_go(self._registry, pod)
        return {**job, "status": status}

    def _adjust(self, job: Object) -> None:
        active, spec = self._active(job), job["spec"]
        succeeded, completions = job["status"].get("succeeded", 0), spec.get("completions")
        wanted = spec["parallelism"] if completions is None else min(spec["parallelism"], completions - succeeded)
        if completions is None and succeeded:
            wanted = min(wanted, len(active))
        if spec.get("suspend"):
            wanted = 0
        self._stop(least_useful_first(active)[: max(0, len(active) - wanted)])
        for _ in range(max(0, wanted - len(active))):
            self._maker.make(job, _pod(job))

    def _stop(self, pods: list[Object]) -> None:
        for pod in pods:
            let_go(self._registry, pod)
            self._registry.delete(PODS, *key_of(pod), DeleteRequest())

    def _clean_up(self, job: Object, pods: list[Object]) -> float | None:
        """Clean up after a finished Job; after its time to live, delete the Job itself."""
        for pod in pods:
            let_go(self._registry, pod)
        self._write(with_counts(job, [pod for pod in pods if is_active(pod)], self._registry.clock()))
        ended, seconds = finished_at(job), dig(job, "spec", "ttlSecondsAfterFinished")
        if seconds is None or ended is None:
            return None
        left = (ended + timedelta(seconds=seconds) - self._registry.clock()).total_seconds()
        if left > 0:
            return left
        self._registry.delete(JOBS, *key_of(job), DeleteRequest())
        return None

    def _seconds_to_deadline(self, job: Object) -> float | None:
        seconds = dig(job, "spec", "activeDeadlineSeconds")
        start = moment_of(text_at(job, "status", "startTime"))
        if seconds is None or start is None:
            return None
        return (start + timedelta(seconds=seconds) - self._registry.clock()).total_seconds()


def tracked(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or [])


def _is_gone(pod: Object) -> bool:
    """Whether only our finalizer holds the pod."""
    return is_leaving(pod) and not pod["metadata"].get("deletionGracePeriodSeconds")


def let_go(registry: Registry, pod: Object) -> None:
    if tracked(pod):
        kept = [name for name in pod["metadata"]["finalizers"] if name != TRACKING]
        registry.rewrite(PODS, *key_of(pod), lambda obj: with_metadata(obj, finalizers=kept or None))


def _pod(job: Object) -> Object:
    inner = dig(job, "spec", "template", "metadata", "finalizers") or []
    return new_pod(job, finalizers=[*inner, TRACKING])

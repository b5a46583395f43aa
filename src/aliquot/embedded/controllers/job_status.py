"""When a Job is finished, and its status."""

from datetime import datetime, timedelta
from enum import Enum

from aliquot.apiserver.objects import Object, dig, moment_of, text_at, timestamp, with_condition
from aliquot.embedded.controllers.children import is_ready


class JobEnd(Enum):
    """Why a Job is finished: its two condition types, reason and message. The first type comes before its pods are
    gone."""

    COMPLETE = ("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    BACKOFF = ("FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    DEADLINE = ("FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")


def end_of(job: Object, active: list[Object], now: datetime) -> JobEnd | None:
    spec, status = job["spec"], job["status"]
    if status.get("failed", 0) > spec["backoffLimit"]:
        return JobEnd.BACKOFF
    start, deadline = moment_of(text_at(status, "startTime")), spec.get("activeDeadlineSeconds")
    if deadline is not None and start is not None and now - start >= timedelta(seconds=deadline):
        return JobEnd.DEADLINE
    succeeded, completions = status.get("succeeded", 0), spec.get("completions")
    if completions is None:
        return JobEnd.COMPLETE if succeeded and not active else None
    return JobEnd.COMPLETE if succeeded >= completions else None


def finished_at(job: Object) -> datetime | None:
    for condition in dig(job, "status", "conditions") or []:
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return moment_of(text_at(condition, "lastTransitionTime"))
    return None


def with_end(job: Object, reached: JobEnd, now: datetime) -> Object:
    before, final, reason, message = reached.value
    status, at = job["status"], timestamp(now)
    conditions = status.get("conditions")
    for kind in (before, final):
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        conditions = with_condition(conditions, {**condition, "lastProbeTime": at, "lastTransitionTime": at})
    ended = {"completionTime": at} if reached is JobEnd.COMPLETE else {}
    return with_counts({**job, "status": {**status, **ended, "conditions": conditions}}, [], now)


def with_counts(job: Object, active: list[Object], now: datetime) -> Object:
    status = {
        **job["status"],
        "active": len(active),
        "ready": sum(is_ready(pod) for pod in active),
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    if not active:
        del status["active"]
    return {**job, "status": _with_suspension(job, status, now)}


def _with_suspension(job: Object, status: Object, now: datetime) -> Object:
    suspended = bool(dig(job, "spec", "suspend"))
    present = next((c for c in status.get("conditions") or [] if c.get("type") == "Suspended"), None)
    word = "True" if suspended else "False"
    if (present is None and not suspended) or text_at(present, "status") == word:
        return status
    at = timestamp(now)
    said = ("JobSuspended", "Job suspended") if suspended else ("JobResumed", "Job resumed")
    condition = {"type": "Suspended", "status": word, "reason": said[0], "message": said[1]}
    timed = {**condition, "lastProbeTime": at, "lastTransitionTime": at}
    return {**status, "conditions": with_condition(status.get("conditions"), timed)}

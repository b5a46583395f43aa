"""The history of a single pod from a decision log, in words."""

from collections.abc import Iterable, Iterator

from aliquot.clock import rfc3339
from aliquot.control.decision_log.format import HeldPart, Line
from aliquot.control.decision_log.replay import Answer
from aliquot.control.state.events import (
    Claimed,
    Confirmed,
    Decided,
    Dropped,
    PodForgotten,
    PodSeen,
    Reassigned,
    Verdict,
)
from aliquot.model import Placement


def story(pod: str, lines: Iterable[tuple[int, Line]]) -> Iterator[str]:
    """Yield a line of text for each event of the pods of this name (`namespace/name`), in order."""
    uids: set[str] = set()
    for _, line in lines:
        for uid, text in _about(line, pod, uids):
            uids.add(uid)
            yield f"{rfc3339(line.at, fraction=True)}  {text}"


def pod_of(line: Line) -> str | None:
    """The pod that a line names."""
    match line.event:
        case HeldPart(owner=owner):
            return owner.pod
        case Decided(request=request) | Claimed(request=request) | Reassigned(request=request):
            return request.pod
        case PodSeen(pod=seen):
            return seen.key
    return None


def _about(line: Line, pod: str, uids: set[str]) -> Iterator[tuple[str, str]]:
    match line.event:
        case HeldPart(owner=owner, placement=placement, state=state) if owner.pod == pod:
            yield (
                owner.uid,
                f"{state.value} already when the log begins: " + where(placement),
            )
        case Decided(request=request, verdict=verdict) as decided if request.pod == pod:
            yield request.uid, f"asked ({request.dialect}, {decided.gpu_policy}/{decided.node_policy}): {said(verdict)}"
        case Claimed(request=request) as claimed if request.pod == pod:
            verb = "claimed" if claimed.until is None else "reserved"
            what = f"not {verb}, {claimed.refused}: " if claimed.refused else f"{verb}: "
            yield request.uid, what + where(claimed.placement)
        case Reassigned(request=request, placement=placement) if request.pod == pod:
            yield request.uid, "given cards after another scheduler bound it: " + where(placement)
        case PodSeen(pod=seen) if seen.key == pod:
            where_bound = f"seen bound on {seen.spec.node_name}" if seen.spec.node_name else "seen, not bound yet"
            yield seen.metadata.uid, "ended" if seen.ended else where_bound
        case Confirmed(uid=uid, node=node) if uid in uids:
            yield uid, f"the API server accepted the placement on {node}"
        case Dropped(uid=uid, node=node) if uid in uids:
            yield uid, f"its claim on {node} was released"
        case PodForgotten(uid=uid) if uid in uids:
            yield uid, "gone; what it held is free"


def answered(answer: Answer) -> str:
    """Format an answer for people, e.g. both answers of a difference."""
    if answer.verdict is not None:
        return said(answer.verdict)
    assert answer.placement is not None, "an answer is a verdict or a claim"
    return f"claim refused, {answer.refused}" if answer.refused else f"claim of {where(answer.placement)}"


def said(verdict: Verdict) -> str:
    refused = "; ".join(f"{count} refused: {reason}" for reason, count in verdict.refused.items())
    if verdict.placement is None:
        return f"fits nowhere{'; ' if refused else ''}{refused}"
    because = f" because {verdict.why}" if verdict.why else ""
    return f"fits on {verdict.fits}, best {where(verdict.placement)}{because}{'; ' if refused else ''}{refused}"


def where(placement: Placement) -> str:
    parts = (
        f"{container} {part.uuid}"
        + (f" {part.cores} %" if part.cores else "")
        + (f" {part.mib} MiB" if part.mib else "")
        + (f" {part.slots} slots" if part.slots else "")
        for container, slices in placement.containers.items()
        for part in slices
    )
    return f"{placement.node} ({', '.join(parts) or 'no card'})"

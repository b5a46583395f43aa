"""The last decision about each pod that asks for cards, as the pod and its events tell it."""

from aliquot.model.admission import NO_ROOM
from aliquot.model.records import EPOCH, PLACEMENT
from aliquot.reports.causes import Cause
from aliquot.reports.pods import pods_report
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView

_OURS = (cause.value for cause in Cause)
_SAYING = frozenset(("Scheduled", "FailedScheduling", "Preempted", "PlacedLate", NO_ROOM, *_OURS))


class DecisionEvent(Report, frozen=True, kw_only=True):
    at: str
    by: str
    reason: str
    message: str
    count: int


class PodDecision(Report, frozen=True, kw_only=True):
    pod: str
    node: str
    placement: str
    """Our record, as it stands on the pod."""
    epoch: str
    events: list[DecisionEvent]
    """The oldest first."""


class DecisionsReport(Report, frozen=True, kw_only=True):
    decisions: list[PodDecision]


def decisions_report(view: ClusterView) -> DecisionsReport:
    events: dict[str, list[DecisionEvent]] = {}
    for event in sorted(view.events, key=lambda event: event.last_seen):
        if event.reason in _SAYING and event.involved_object.kind == "Pod":
            events.setdefault(event.involved_object.uid, []).append(
                DecisionEvent(
                    at=event.last_seen,
                    by=event.reporting_component or event.source.component,
                    reason=event.reason,
                    message=event.message,
                    count=event.count or 1,
                )
            )
    found = []
    for pod in pods_report(view).pods:
        annotations = view.pods[pod.uid].metadata.annotations
        found.append(
            PodDecision(
                pod=f"{pod.namespace}/{pod.name}",
                node=pod.node,
                placement=annotations.get(PLACEMENT, ""),
                epoch=annotations.get(EPOCH, ""),
                events=events.get(pod.uid, []),
            )
        )
    return DecisionsReport(decisions=found)

"""What pods hold against what they use."""

from collections.abc import Iterable, Mapping

from aliquot.control.inputs.pod_use import in_all, unused
from aliquot.model import Charge
from aliquot.model.load import IDLE
from aliquot.model.selling import share_of
from aliquot.reports.pods import PodReport, pods_report
from aliquot.reports.report import Report, Use
from aliquot.reports.view import ClusterView


class WastefulPod(Report, frozen=True, kw_only=True):
    namespace: str
    name: str
    node: str
    cards: int = 1
    """Of how many cards it holds a part."""
    held: float | None
    """In cards: the sum of the parts that it holds, each in the measure of which it holds most. None if the caller may
    not see the cards."""
    used: float | None
    """In cards: of each card the part that it keeps busy, or its part of the memory if that is more. None if it is not
    known how busy it keeps them."""
    unused: float | None
    memory_mib: int
    use: Use
    is_idle: bool
    idle_since: str = ""
    """Since when it has been idle; empty if that is unknown. Only a server that has watched it knows."""


class WasteReport(Report, frozen=True, kw_only=True):
    pods: list[WastefulPod]
    """The largest waste first; those that are not measured last."""
    held: float
    measured: float
    """What is held by pods that are measured."""
    unused: float


def waste_report(view: ClusterView, namespace: str = "", idle_since: Mapping[str, str] | None = None) -> WasteReport:
    """`idle_since` is by UID."""
    since = idle_since or {}
    held = (pod for pod in pods_report(view, namespace).pods if pod.cards)
    return total_waste(wasteful_pod(view, pod, since.get(pod.uid, "")) for pod in held)


def total_waste(pods: Iterable[WastefulPod]) -> WasteReport:
    ordered = sorted(pods, key=lambda pod: (-(pod.unused if pod.unused is not None else -1), pod.namespace, pod.name))
    measured = [pod for pod in ordered if pod.unused is not None]
    return WasteReport(
        pods=ordered,
        held=round(sum(pod.held or 0 for pod in ordered), 4),
        measured=round(sum(pod.held or 0 for pod in measured), 4),
        unused=round(sum(pod.unused or 0 for pod in measured), 4),
    )


def wasteful_pod(view: ClusterView, pod: PodReport, since: str) -> WastefulPod:
    """What a pod that holds cards does not use, and `since` when it has been idle."""
    by_uuid = view.cluster.cards(pod.node).by_uuid
    known = [(card, by_uuid[card.uuid]) for card in pod.cards if card.uuid in by_uuid]
    shares = [share_of(gpu, Charge(card.cores, card.memory_mib, card.slots)) for card, gpu in known]
    held = round(sum(shares), 4) if len(shares) == len(pod.cards) else None
    use = in_all(view.uses_of(view.pods[pod.uid]).values())
    return WastefulPod(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        cards=len(pod.cards),
        held=held,
        used=None if use.share is None else round(use.share, 4),
        unused=None if use.share is None or held is None else round(unused(held, use), 4),
        memory_mib=pod.memory_mib,
        use=pod.use,
        is_idle=pod.use.cores is not None and pod.use.cores < IDLE,
        idle_since=since,
    )

"""The whole explanation of a pod: the dominant cause, then every other reason, then the changes that would help."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.engine import Effort, Explanation, Group, NodeFinding, Relaxation, RelaxationKind, needs_text
from aliquot.errors import BadDemand
from aliquot.model import Pod, Slice
from aliquot.model.pending_pod import PendingPod
from aliquot.model.records import PLACEMENT
from aliquot.reports.causes import Cause, Verdict
from aliquot.reports.closed_nodes import ClosedNodes
from aliquot.reports.pods import recorded_placement
from aliquot.reports.report import Report
from aliquot.reports.scheduler_words import refusal_of_scheduler
from aliquot.reports.why_waiting import LOOK_EFFORT, ByReason, Surroundings, with_engine, without_engine

_MAX_NODES_SHOWN = 3
"""In a small cluster, every node is shown card by card."""

_MAX_CHANGES = 3

_DOES_NOT_WAIT = (Cause.BOUND.value, Cause.ENDED.value)

MayRead = Callable[[str], bool]
"""Whether the caller may read the pods of a namespace."""


class Explained(Report, frozen=True, kw_only=True):
    """`reasons` count nodes; a node that is closed for two reasons counts for both. `changes` continue "It fits"."""

    pod: str
    """As namespace/name."""
    cause: str
    """One of `Cause`."""
    outlook: str
    """One of `Outlook`, by its name: `never`, `not_now`, `fits`, `settled`."""
    message: str
    """The dominant cause, as the leader writes it on the pod."""
    needs: str = ""
    reasons: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes card by card, each in several lines."""
    holds: tuple[str, ...] = ()
    """What a bound pod has, and where."""
    scheduler_says: str = ""
    notes: tuple[str, ...] = ()
    """What is not known."""

    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        waits = "" if self.cause in _DOES_NOT_WAIT else " waits"
        yield f"{self.pod}{waits}. {self.message}"
        if self.needs:
            yield f"It needs {self.needs}."
        yield from (f"  {line}" for line in (*self.holds, *self.reasons))
        if self.changes:
            yield "It fits"
            yield from (f"  {line}" for line in self.changes)
        yield from self.nodes
        if self.scheduler_says:
            yield f"Its scheduler says: {self.scheduler_says}"
        yield from self.notes


def explained(pod: str, verdict: Verdict, **more: Any) -> Explained:
    """A report that begins with a verdict."""
    return Explained(pod=pod, cause=verdict.cause.value, outlook=verdict.outlook.key, message=verdict.headline, **more)


def explain_pod(
    cluster: ClusterState, pod: PendingPod, around: Surroundings, may_read: MayRead, *, node: str = ""
) -> Explained:
    """Explain a pod to a caller, who may read the pods of some namespaces only: no other pod is named. `node` is one
    to show card by card."""
    found = without_engine(cluster, pod, around)
    if isinstance(found, Verdict):
        return explained_without(cluster, pod, found)
    ruled_out = around.closed_to(cluster, pod, found).ruled_out(around.nodes.values())
    return explained_by(cluster, pod, around, found, cluster.explain(found, ruled_out), may_read, node=node)


def explained_without(cluster: ClusterState, pod: PendingPod, verdict: Verdict) -> Explained:
    """The explanation of a pod whose verdict depends on no card."""
    holds = tuple(_holds(cluster, pod)) if verdict.cause is Cause.BOUND else ()
    return explained(pod.key, verdict, holds=holds, scheduler_says=refusal_of_scheduler(pod))


def explained_by(
    cluster: ClusterState,
    pod: PendingPod,
    around: Surroundings,
    demand: Demand,
    told: Explanation,
    may_read: MayRead,
    *,
    node: str = "",
) -> Explained:
    """The same, with the engine's explanation at hand."""
    by_reason = {group.reason: [name for name in group.nodes if name in around.nodes] for group in told.groups}
    closed = around.closed_to(cluster, pod, demand)
    verdict = with_engine(around, closed, demand, by_reason)
    return explained(
        pod.key,
        verdict,
        needs=needs_text(demand.request),
        reasons=(*map(_group_text, told.groups), *_closed(around, closed, by_reason)),
        changes=tuple(dict.fromkeys(_changes(around, closed, by_reason, told, may_read))),
        nodes=tuple(_node_text(finding, around, closed) for finding in _findings(cluster, demand, told, node)),
        scheduler_says=refusal_of_scheduler(pod),
        notes=tuple(f"Note: {note}" for note in (around.untried(pod),) if note and verdict.cause is not Cause.FITS),
    )


def _closed(around: Surroundings, closed: ClosedNodes, by_reason: ByReason) -> Iterator[str]:
    """What else closes nodes whose cards could take the pod, now or later."""
    hopeful = ((reason, nodes) for reason, nodes in by_reason.items() if reason is None or not reason.is_hopeless)
    counted = Counter(
        obstacle.text()
        for reason, nodes in hopeful
        for name in nodes
        for obstacle in closed.obstacles(around.nodes[name], fits=reason is None)
    )
    yield from (f"{_nodes(count)}: {text}" for text, count in counted.most_common())


def _group_text(group: Group) -> str:
    """Where the cards have room, something else may close the node."""
    return group.text() if group.reason is not None else f"{_nodes(len(group.nodes))}: the cards have room"


def _changes(
    around: Surroundings, closed: ClosedNodes, by_reason: ByReason, told: Explanation, may_read: MayRead
) -> Iterator[str]:
    """What would help: on nodes with room, that which alone closes them; else what the engine has tried."""
    alone = ((name, closed.obstacles(around.nodes[name], fits=True)) for name in by_reason.get(None, ()))
    kinds = {found[0]: name for name, found in reversed([(name, found) for name, found in alone if len(found) == 1])}
    yield from (obstacle.change(name) for obstacle, name in sorted(kinds.items(), key=itemgetter(1))[:_MAX_CHANGES])
    yield from (_change(each, may_read) for each in told.relaxations)


def _change(change: Relaxation, may_read: MayRead) -> str:
    if change.kind is not RelaxationKind.POD_ENDS or may_read(change.pod.partition("/")[0]):
        return change.text
    return f"when a pod of another namespace ends (on {change.node})"


def _findings(cluster: ClusterState, demand: Demand, told: Explanation, node: str) -> Iterable[NodeFinding]:
    having = [name for group in told.groups for name in group.nodes if cluster.cards(name).gpus]
    shown = [node] if node else having if len(having) <= _MAX_NODES_SHOWN else []
    return (cluster.explain_node(demand, name, Effort(LOOK_EFFORT)) for name in sorted(shown))


def _node_text(finding: NodeFinding, around: Surroundings, closed: ClosedNodes) -> str:
    """Where the cards have room, something else may close the node."""
    known = around.nodes.get(finding.node)
    obstacles = closed.obstacles(known, fits=True) if finding.fits and known else []
    if not obstacles:
        return finding.text()
    why = "; ".join(obstacle.text() for obstacle in obstacles)
    return "\n".join(
        [f"{finding.node}: the cards have room, but: {why}", *(f"  {card.text()}" for card in finding.cards)]
    )


def _holds(cluster: ClusterState, pod: Pod) -> Iterator[str]:
    """What a bound pod has, as the ledger or its record knows it, and why its containers do not run."""
    node = pod.spec.node_name
    entry, cards = cluster.ledger.entry(pod.metadata.uid, node), cluster.cards(node)
    # a reader who may not see the node has only the record on the pod
    placement = entry.placement if entry else None if cards.gpus else recorded_placement(pod)
    if placement is None:
        yield f"Aliquot knows of no card that the pod holds on {node}"
    else:
        for container, parts in placement.containers.items():
            for part in parts:
                gpu = cards.by_uuid.get(part.uuid)
                model = f" ({gpu.model})" if gpu else ""
                yield f"container {container}: {_part(part)} of card {part.index}{model}, {part.uuid}"
        yield _why_there(cluster, pod)
    for status in (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())):
        if (waiting := status.state.waiting) is not None:
            yield f"container {status.name} does not run: {waiting.reason}: {waiting.message}".rstrip(": ")


def _why_there(cluster: ClusterState, pod: Pod) -> str:
    """Who chose the node and the cards, by which policies, and why, if the decision is remembered."""
    if PLACEMENT not in pod.metadata.annotations:
        return "another scheduler or device plugin chose them"
    try:
        demand = cluster.demand_of(pod)
    except BadDemand:
        demand = None
    if demand is None:
        return "Aliquot chose them; the pod asks for something else now"
    gpu_policy, node_policy = demand.policies
    chosen = f"Aliquot chose among the nodes by policy {node_policy}, and among the cards by policy {gpu_policy}"
    decided = cluster.decisions.get(pod.metadata.uid)
    if decided is None or decided.placement is None or decided.placement.node != pod.spec.node_name:
        return chosen
    because = f" because {decided.why}" if decided.why else ""
    refused = "".join(f"; {_nodes(count)}: {reason}" for reason, count in decided.refused.items())
    return f"{chosen}. It fit on {_nodes(decided.fits)}, and this was the best{because}{refused}"


def _part(part: Slice) -> str:
    sizes = [f"{part.mib:,} MiB"] * bool(part.mib) + [f"{part.cores} % of cores"] * bool(part.cores)
    sizes += [f"{part.slots} MPS slot{'s' * (part.slots > 1)}"] * bool(part.slots)
    return " and ".join(sizes) or "a part"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"

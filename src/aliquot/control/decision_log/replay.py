"""Replay of a decision log: the same cluster state must give the same answers to the same questions."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aliquot.control.decision_log.format import Begun, Cards, Counted, Header, HeldPart, Hosts, Line, entry_of
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Decided, Snapshot, Verdict, verdict_of
from aliquot.dialects import Demand, Dialects, make_dialects
from aliquot.engine import CountsRecord, Effort, Judgement, endless
from aliquot.errors import BadConfig, Refused
from aliquot.ledger import Entry
from aliquot.model import Host, NodeGpus, Placement, Request
from aliquot.model.host import shared_host


@dataclass(frozen=True)
class Answer:
    """An answer of the cluster state, logged or replayed: a verdict, a placement on a single node, or a refusal."""

    verdict: Verdict | None = None
    placement: Placement | None = None
    refused: str = ""


@dataclass(frozen=True)
class Difference:
    line: int
    at: int
    pod: str
    then: Answer
    now: Answer


class Replay:
    """Feed it the lines of a file, in order. After the first difference the cluster state no longer matches the log."""

    def __init__(self) -> None:
        self.cluster = ClusterState()
        self.decisions = 0
        self.difference: Difference | None = None
        self._cards: list[NodeGpus] = []
        self._entries: list[Entry] = []
        self._provisional: set[str] = set()
        self._offered: dict[str, Host] = {}
        self._bound: dict[str, dict[str, Host]] = {}
        self._shapes, self._counted = CountsRecord(), frozenset[str]()
        self._judgement: Judgement | None = None

    def feed(self, lines: Iterable[tuple[int, Line]]) -> None:
        """Replay all lines, or up to the first difference. Raises BadConfig if a logged dialect is not installed."""
        for number, line in lines:
            self.take(number, line)
            if self.difference is not None:
                return

    def take(self, number: int, line: Line) -> None:
        match line.event:
            case Header(prefixes=prefixes):
                self._begin_anew(prefixes)
            case Cards(cards=cards):
                self._cards.append(cards)
            case HeldPart() as held:
                self._entries.append(entry_of(held))
                self._provisional |= {held.owner.uid} if held.provisional else set()
            case Hosts(node=node, offered=offered, pods=pods):
                if offered is not None:
                    self._offered[node] = Host(*offered)
                self._bound[node] = {uid: shared_host(*numbers) for uid, numbers in pods.items()}
            case Counted(shapes=shapes, uids=uids):
                self._shapes, self._counted = shapes, frozenset(uids)
            case Begun() as begun:
                self.cluster.restore(self._snapshot(begun))
            case Decided() as decided:
                self._decide(number, line.at, decided)
            case Claimed() as claimed:
                self._claim(number, line.at, claimed)
            case event:
                self._judgement = None
                self.cluster.apply(event)

    def _snapshot(self, begun: Begun) -> Snapshot:
        return Snapshot(
            self._cards,
            self._entries,
            frozenset(self._provisional),
            begun.quotas,
            {node: frozenset(indexes) for node, indexes in begun.marks.items()},
            self._offered,
            self._bound,
            self._shapes,
            self._counted,
        )

    def _begin_anew(self, prefixes: dict[str, str]) -> None:
        """Start over like a new process, which knows only what the following lines say."""
        self.cluster = ClusterState(logged_dialects(prefixes))
        self._cards, self._entries, self._provisional = [], [], set()
        self._offered, self._bound = {}, {}
        self._shapes, self._counted = CountsRecord(), frozenset()
        self._judgement = None

    def _decide(self, number: int, at: int, decided: Decided) -> None:
        self.decisions += 1
        # the configuration at that time set the dialects' default policies
        constraints = decided.request.constraints
        constraints = replace(constraints, gpu_policy=decided.gpu_policy, node_policy=decided.node_policy)
        request = replace(decided.request, constraints=constraints)
        demand, then = Demand(self.cluster.dialects[request.dialect], request), decided.search
        effort = Effort(then.steps) if then else endless()
        self._judgement = self.cluster.judge(demand, then.nodes if then else None, effort=effort)
        self._compare(number, at, request, Answer(decided.verdict), Answer(verdict_of(self._judgement)))

    def _claim(self, number: int, at: int, claimed: Claimed) -> None:
        """Replay a claim. A claim that follows its decision must have the placement that the decision found on that
        node. A reservation, or a claim of a reserved part, need not: its placement was decided before."""
        judgement, self._judgement = self._judgement, None
        placement, request = claimed.placement, claimed.request
        kept = self.cluster.ledger.entry(request.uid, placement.node)
        is_kept = claimed.until is not None or (kept is not None and kept.placement == placement)
        if judgement is not None and judgement.request.uid == request.uid and not is_kept:
            placement = judgement.placement(placement.node) or Placement(placement.node, placement.dialect, {})
        refused = ""
        try:
            self.cluster.apply(claimed)
        except Refused as error:
            refused = str(error)
        then = Answer(placement=claimed.placement, refused=claimed.refused)
        self._compare(number, at, claimed.request, then, Answer(placement=placement, refused=refused))

    def _compare(self, number: int, at: int, request: Request, then: Answer, now: Answer) -> None:
        if then != now and self.difference is None:
            self.difference = Difference(number, at, request.pod, then, now)


def logged_dialects(prefixes: dict[str, str]) -> Dialects:
    """Those that a log was written with. Raises BadConfig if one is not installed."""
    dialects = make_dialects()
    if unknown := sorted(prefixes.keys() - dialects.keys()):
        raise BadConfig(f"the log was written with dialects that are not installed here: {', '.join(unknown)}")
    return make_dialects(prefixes)

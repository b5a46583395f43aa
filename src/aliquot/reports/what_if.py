"""Where pods would go if they were created now, one after another. They are judged as `explain` judges them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from aliquot.control.state.trial import Trial
from aliquot.dialects import Demand
from aliquot.model import Placement, Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.causes import Cause, Outlook, Verdict
from aliquot.reports.closed_nodes import ClosedNodes
from aliquot.reports.explained import Explained, explained_by, explained_without
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView
from aliquot.reports.why_waiting import Surroundings, without_engine


class WhatIfPod(Report, frozen=True, kw_only=True):
    name: str
    node: str = ""
    cards: tuple[int, ...] = ()
    """By index."""
    model: str = ""
    why: str = ""
    """Why it would wait: the first line of `explain`."""


class WhatIfReport(Report, frozen=True, kw_only=True):
    fits: int
    pods: list[WhatIfPod]
    remedies: tuple[str, ...] = ()
    """What would make the first pod that waits fit; continues "It fits"."""


def what_if(view: ClusterView, pods: Sequence[PendingPod]) -> WhatIfReport:
    """The engine's choice for each pod, with the parts of those before it taken."""
    with view.cluster.trial() as trial:
        trying = _Trying(view, trial, pods)
        found = [trying.place(pod) for pod in pods]
    return WhatIfReport(fits=sum(bool(each.node) for each in found), pods=found, remedies=trying.remedies)


class _Trying:
    def __init__(self, view: ClusterView, trial: Trial, pods: Iterable[PendingPod]) -> None:
        self._view = view
        self._cluster = view.cluster
        self._trial = trial
        self._made_up = {pod.key for pod in pods} - {pod.key for pod in view.pods.values()}
        self._placed: dict[str, list[Pod]] = {}
        self._around = Surroundings(view.nodes, self._pods_on, view.silent_agents)
        self._open: dict[bytes, list[str]] = {}
        self._refused: dict[bytes, str] = {}
        """Why pods of a kind wait: no later pod of that kind fits."""
        self.remedies: tuple[str, ...] = ()

    def place(self, pod: PendingPod) -> WhatIfPod:
        kind = msgspec.json.encode((pod.spec, pod.metadata.annotations, pod.metadata.labels, pod.metadata.namespace))
        if why := self._refused.get(kind):
            return WhatIfPod(name=pod.metadata.name, why=why)
        found = without_engine(self._cluster, pod, self._around)
        demand = None if isinstance(found, Verdict) else found
        closed = self._around.closed_to(self._cluster, pod, demand)
        if isinstance(found, Verdict) and found.cause is not Cause.NO_GPU:
            return self._waits(kind, pod, explained_without(self._cluster, pod, found))
        if kind not in self._open:
            ruled_out = closed.ruled_out(self._view.nodes.values())
            self._open[kind] = [name for name in self._view.nodes if name not in ruled_out]
        node, placement = self._choose(closed, demand, self._open[kind])
        if not node:
            return self._waits(kind, pod, self._explained(pod, closed, demand))
        self._placed.setdefault(node, []).append(pod)
        if demand is not None and placement is not None:
            self._trial.take(demand.request, placement)
        return self._goes(pod, node, placement)

    def _pods_on(self, node: str) -> Sequence[Pod]:
        return [*self._view.pods_on(node), *self._placed.get(node, ())]

    def _choose(self, closed: ClosedNodes, demand: Demand | None, names: Sequence[str]) -> tuple[str, Placement | None]:
        def is_open(name: str) -> bool:
            return not closed.obstacles(self._view.nodes[name], fits=True)

        if demand is None:
            return min(filter(is_open, names), default=""), None
        judged = self._cluster.judge(demand, names)
        best = judged.best(names) or ""
        if best and not is_open(best):  # rarely, so the other nodes are only looked at then
            best = judged.best([name for name in names if is_open(name)]) or ""
        return best, judged.placement(best) if best else None

    def _explained(self, pod: PendingPod, closed: ClosedNodes, demand: Demand | None) -> Explained:
        if demand is None:
            return explained_without(self._cluster, pod, self._no_node(closed))
        told = self._cluster.explain(demand, closed.ruled_out(self._view.nodes.values()))
        real = tuple(change for change in told.relaxations if change.pod not in self._made_up)
        told = replace(told, relaxations=real)
        return explained_by(self._cluster, pod, self._around, demand, told, lambda _: True)

    def _no_node(self, closed: ClosedNodes) -> Verdict:
        """About a pod that asks for no card."""
        found = Counter(closed.obstacles(node, fits=True)[0] for node in self._view.nodes.values())
        if not found:
            return Verdict(Cause.NO_NODE, Outlook.NEVER, "there is no node")
        ((obstacle, _),) = found.most_common(1)
        return Verdict(obstacle.cause, Outlook.NOT_NOW, f"no node is open to the pod: {obstacle.text()}")

    def _waits(self, kind: bytes, pod: PendingPod, told: Explained) -> WhatIfPod:
        if not self._refused:
            self.remedies = told.changes
        self._refused[kind] = told.message
        return WhatIfPod(name=pod.metadata.name, why=told.message)

    def _goes(self, pod: Pod, node: str, placement: Placement | None) -> WhatIfPod:
        by_uuid = self._cluster.cards(node).by_uuid
        uuids = {part.uuid for part in placement.slices()} if placement else set()
        gpus = [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]
        return WhatIfPod(
            name=pod.metadata.name,
            node=node,
            cards=tuple(sorted(gpu.index for gpu in gpus)),
            model=", ".join(sorted({gpu.model for gpu in gpus})),
        )

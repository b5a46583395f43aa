"""Where pods would go if they were created now, one after another."""

from collections.abc import Sequence

from aliquot.control.loops.node_choice import NodeChooser
from aliquot.model import Pod
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView


class WhatIfPod(Report, frozen=True, kw_only=True):
    name: str
    node: str = ""
    cards: tuple[int, ...] = ()
    """By index."""
    model: str = ""
    why: str = ""
    """Why it would wait: a resource that no node has, or the reasons as kube-scheduler counts them."""


class WhatIfReport(Report, frozen=True, kw_only=True):
    fits: int
    pods: list[WhatIfPod]
    remedies: tuple[str, ...] = ()
    """What would make the first pod that waits fit."""


def what_if(view: ClusterView, pods: Sequence[Pod]) -> WhatIfReport:
    """The engine's choice for each pod, with the parts of those before it taken. Node selectors, CPU and memory count;
    taints and affinities do not. Raises BadDemand."""
    bound: dict[str, list[Pod]] = {}
    for pod in view.pods.values():
        bound.setdefault(pod.spec.node_name, []).append(pod)
    chooser = NodeChooser(view.cluster, view.nodes.values, lambda node: bound.get(node, []))
    found: list[WhatIfPod] = []
    remedies: tuple[str, ...] = ()
    made_up = {pod.key for pod in pods} - {pod.key for pod in view.pods.values()}
    with view.cluster.trial() as trial:
        for pod in pods:
            demand = view.cluster.demand_of(pod)
            choice = chooser.choose(pod)
            if choice.node is None:
                found.append(WhatIfPod(name=pod.metadata.name, why=view.no_such_resource(pod) or choice.why))
                if demand is not None and not remedies:
                    changes = view.cluster.explain(demand).relaxations
                    remedies = tuple(each.text for each in changes if each.pod not in made_up)
                continue
            found.append(_placed(view, pod, choice.node, choice.cards()))
            bound.setdefault(choice.node, []).append(pod)
            placement = choice.judgement.placement(choice.node) if choice.judgement else None
            if demand is not None and placement is not None:
                trial.take(demand.request, placement)
    return WhatIfReport(fits=sum(bool(each.node) for each in found), pods=found, remedies=remedies)


def _placed(view: ClusterView, pod: Pod, node: str, uuids: Sequence[str]) -> WhatIfPod:
    by_uuid = view.cluster.cards(node).by_uuid
    gpus = [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]
    return WhatIfPod(
        name=pod.metadata.name,
        node=node,
        cards=tuple(sorted(gpu.index for gpu in gpus)),
        model=", ".join(sorted({gpu.model for gpu in gpus})),
    )

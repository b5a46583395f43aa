"""The smallest changes that would make a request fit. Each of them was tried.

The work is bounded: only one of several nodes that make no difference is tried, and those with the freest cards come
first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from heapq import nlargest
from itertools import islice

from aliquot.engine.effort import Effort
from aliquot.engine.holder import Holder, freed, largest_gone, without
from aliquot.engine.one_node.look import try_out
from aliquot.engine.quotas.quota import QuotaCheck
from aliquot.engine.state import NodeState
from aliquot.engine.why.alike import Shapes
from aliquot.model import ContainerRequest, Gpu, Part, Request, Topology, Unit

_MAX_NODES = 400
_MAX_HOPEFUL = 64
"""Nodes on which pods are tried one after another."""
_MAX_SAID = 3
"""The most pods or cards to name."""


class RelaxationKind(Enum):
    """What would have to change."""

    MEMORY = "memory"
    CORES = "cores"
    CARDS = "cards"
    MODEL = "model"
    CONSTRAINT = "constraint"
    POD_ENDS = "pod ends"
    CARD = "card"
    QUOTA = "quota"


@dataclass(frozen=True)
class Relaxation:
    """`text` continues "It fits". `node` is a node where it would fit. `amount` is the number in the text, if any, and
    `pod` the pod that it names."""

    kind: RelaxationKind
    text: str
    node: str
    amount: int | None = None
    pod: str = ""


def relaxations(
    states: Mapping[str, NodeState],
    request: Request,
    quota: QuotaCheck | None = None,
    holders: Mapping[str, Sequence[Holder]] | None = None,
    effort: Effort | None = None,
    shapes: Shapes | None = None,
) -> Iterator[Relaxation]:
    """For a request that fits nowhere. `shapes` may know nodes already."""
    effort, shapes = effort or Effort(), shapes or Shapes(request)
    permitted = {node: quota.permits(state) if quota else state for node, state in states.items()}
    nodes = shapes.distinct(permitted.values())[:_MAX_NODES]
    yield from _smaller(nodes, request, effort)
    yield from _fewer_constraints(permitted, request, effort)
    yield from _after_a_pod(permitted, shapes, holders or {}, effort)
    yield from _with_a_card(nodes, states, request, quota, effort)
    if quota is not None and quota.quota is not None:
        yield from _more_quota(states, shapes, quota, effort)


def _fits(state: NodeState, request: Request, effort: Effort) -> bool:
    return try_out(state, request, effort).fits


# -- asking for less


def _smaller(nodes: Sequence[NodeState], request: Request, effort: Effort) -> Iterator[Relaxation]:
    for place, container in enumerate(request.containers):
        who = "" if len(request.containers) == 1 else f"container {container.name}: "
        for change, largest, resize, words in _sizes(container.part):
            if largest > 1 and (found := _largest(nodes, request, place, largest - 1, resize, effort)):
                amount, node = found
                yield Relaxation(change, f"if {who}{words.format(amount=amount)}", node, amount)
    yield from _fewer_cards(nodes, request, effort)


_Resize = Callable[[Part, int], Part]

_MEMORY = {
    Unit.MIB: "memory <= {amount:,} MiB",
    Unit.NODE: "memory <= {amount:,} units",
    Unit.PERCENT: "memory <= {amount} % of a card",
    Unit.SLOT: "memory <= {amount} slots",
}


def _sizes(part: Part) -> Iterator[tuple[RelaxationKind, int, _Resize, str]]:
    """What could be smaller in a part: its size, how to change it, and how to say it."""
    if part.whole:
        return
    if part.memory.unit is Unit.PERCENT and part.memory.amount == part.cores:
        yield RelaxationKind.MEMORY, part.cores, _with_share, "memory and cores <= {amount} % of a card"
    if part.slots:
        yield RelaxationKind.CORES, part.slots, _with_slots, "MPS slots <= {amount}"
    yield RelaxationKind.MEMORY, part.memory.amount, _with_memory, _MEMORY[part.memory.unit]
    yield RelaxationKind.CORES, part.cores, _with_cores, "cores <= {amount} %"


def _with_memory(part: Part, amount: int) -> Part:
    return replace(part, memory=replace(part.memory, amount=amount))


def _with_cores(part: Part, amount: int) -> Part:
    return replace(part, cores=amount)


def _with_share(part: Part, amount: int) -> Part:
    return _with_cores(_with_memory(part, amount), amount)


def _with_slots(part: Part, amount: int) -> Part:
    smaller = replace(part, slots=amount)
    return _with_memory(smaller, amount) if part.memory.unit is Unit.SLOT else smaller


def _largest(
    nodes: Sequence[NodeState], request: Request, place: int, most: int, resize: _Resize, effort: Effort
) -> tuple[int, str] | None:
    """The largest size that fits anywhere, and where. Most nodes are asked only once: whether they can do better."""
    best, where = 0, ""
    for state in nodes:
        if effort.ran_out:
            break
        low, high = best, most
        if best == most or not _fits(state, _resized(request, place, resize, best + 1), effort):
            continue
        low += 1
        while low < high:
            middle = (low + high + 1) // 2
            if _fits(state, _resized(request, place, resize, middle), effort):
                low = middle
            else:
                high = middle - 1
        best, where = low, state.cards.node
    return (best, where) if best else None


def _resized(request: Request, place: int, resize: _Resize, amount: int) -> Request:
    containers = list(request.containers)
    containers[place] = replace(containers[place], part=resize(containers[place].part, amount))
    return replace(request, containers=tuple(containers))


def _fewer_cards(nodes: Sequence[NodeState], request: Request, effort: Effort) -> Iterator[Relaxation]:
    """One container at a time; containers that share their cards all at once."""
    for containers in [request.containers] if request.together else [(container,) for container in request.containers]:
        wanted = max(container.part.cards for container in containers)
        for count in range(wanted - 1, 0, -1):
            fewer = replace(request, containers=tuple(_with_cards(c, containers, count) for c in request.containers))
            state = _first(nodes, fewer, effort)
            if state is not None:
                who = "" if len(containers) == len(request.containers) else f" for container {containers[0].name}"
                cards = "1 card" if count == 1 else f"{count} cards"
                yield Relaxation(
                    RelaxationKind.CARDS, f"with {cards} instead of {wanted}{who}", state.cards.node, count
                )
                break


def _with_cards(container: ContainerRequest, changing: Sequence[ContainerRequest], count: int) -> ContainerRequest:
    if container not in changing:
        return container
    return replace(container, part=replace(container.part, cards=min(count, container.part.cards)))


def _first(nodes: Sequence[NodeState], request: Request, effort: Effort) -> NodeState | None:
    return next((state for state in nodes if not effort.ran_out and _fits(state, request, effort)), None)


# -- fewer constraints


def _fewer_constraints(states: Mapping[str, NodeState], request: Request, effort: Effort) -> Iterator[Relaxation]:
    constraints = request.constraints
    if constraints.models:
        yield from _on_other_models(states, replace(request, constraints=replace(constraints, models=())), effort)
    dropped = {
        "without the constraint on cards": replace(constraints, only_uuids=None, not_uuids=frozenset()),
        f"without the {constraints.topology.value} topology": replace(constraints, topology=Topology.ANY),
        "without the request for a MIG instance": replace(constraints, mig=""),
    }
    for text, fewer in dropped.items():
        if fewer != constraints:
            easier = replace(request, constraints=fewer)
            state = _first(Shapes(easier).distinct(states.values())[:_MAX_NODES], easier, effort)
            if state is not None:
                yield Relaxation(RelaxationKind.CONSTRAINT, text, state.cards.node)


def _on_other_models(states: Mapping[str, NodeState], request: Request, effort: Effort) -> Iterator[Relaxation]:
    nodes = Shapes(request).distinct(states.values())[:_MAX_NODES]
    for model in sorted({gpu.model for state in nodes for gpu in state.cards.gpus}):
        having = (state for state in nodes if any(gpu.model == model for gpu in state.cards.gpus))
        state = _first([_only(state, model) for state in having], request, effort)
        if state is not None:
            yield Relaxation(RelaxationKind.MODEL, f"on {model}", state.cards.node)


def _only(state: NodeState, model: str) -> NodeState:
    return state.closed({gpu.uuid for gpu in state.cards.gpus if gpu.model != model})


# -- waiting


def _after_a_pod(
    states: Mapping[str, NodeState], shapes: Shapes, holders: Mapping[str, Sequence[Holder]], effort: Effort
) -> Iterator[Relaxation]:
    """The pods that give back least, one at a time."""
    request, having = shapes.request, (node for node in states if holders.get(node))
    held = nlargest(_MAX_NODES, having, key=lambda node: shapes.freest(states[node]))
    hopeful = (node for node in held if _fits(largest_gone(states[node], holders[node], 1), request, effort))
    found: list[tuple[tuple[int, int], str, str]] = []
    for node in islice(hopeful, _MAX_HOPEFUL):
        for holder in sorted(holders[node], key=lambda holder: (freed([holder]), holder.pod)):
            if holder.uid != request.uid and _fits(without(states[node], [holder]), request, effort):
                found.append((freed([holder]), holder.pod, node))
                break
    for _, pod, node in sorted(found)[:_MAX_SAID]:
        yield Relaxation(RelaxationKind.POD_ENDS, f"when pod {pod} ends (on {node})", node, pod=pod)


def _with_a_card(
    nodes: Sequence[NodeState],
    states: Mapping[str, NodeState],
    request: Request,
    quota: QuotaCheck | None,
    effort: Effort,
) -> Iterator[Relaxation]:
    """One unhealthy or cordoned card at a time. Cards that the quota closes stay closed."""
    found = (
        (permitted, gpu)
        for permitted in nodes
        for gpu in states[permitted.cards.node].cards.gpus
        if (not gpu.healthy or gpu.cordoned)
        and not (quota and quota.refuses(permitted.cards, gpu))
        and _fits(permitted.opened({gpu.uuid}), request, effort)
    )
    for permitted, gpu in islice(found, _MAX_SAID):
        want = " and ".join(["healthy"] * (not gpu.healthy) + ["uncordoned"] * gpu.cordoned)
        node = permitted.cards.node
        yield Relaxation(RelaxationKind.CARD, f"when card {gpu.uuid} is {want} (on {node})", node)


# -- more quota


def _more_quota(
    states: Mapping[str, NodeState], shapes: Shapes, quota: QuotaCheck, effort: Effort
) -> Iterator[Relaxation]:
    """For each kind of card that the quota refuses: whether the pod would fit there, and what the quota lacks for
    it."""
    said: set[str] = set()
    for state in shapes.distinct(states.values())[:_MAX_NODES]:
        missing = {gpu.uuid: _missing(state, gpu, quota) for gpu in state.cards.gpus}
        for text in sorted(set(missing.values()) - said - {""}):
            others = {uuid for uuid, other in missing.items() if other not in ("", text)}
            if _fits(state.closed(others), shapes.request, effort):
                said.add(text)
                yield Relaxation(RelaxationKind.QUOTA, text, state.cards.node)


def _missing(state: NodeState, gpu: Gpu, quota: QuotaCheck) -> str:
    """What the quota would have to grant for a card; "" if nothing is missing."""
    cards, namespace = state.cards, quota.request.namespace
    grants = []
    if quota.refuses_node(cards):
        grants.append(f"if the quota of {namespace} also covers {f'pool {cards.pool}' if cards.pool else 'every pool'}")
    if quota.refuses_card(cards, gpu):
        lines = quota.lines(cards, gpu)
        grants += [f"with quota {line.grant()}" for line in lines if line.missing]
        if not lines:
            grants.append(f"if the quota of {namespace} also covers {cards.model or gpu.model}")
    return " and ".join(grants)

"""Which pods of lower priority have to end so that a request fits: the cheapest set, on each node and over all nodes.

Sets compare by their highest priority, then by the number of pods, then by the memory and cores they give back.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, inf

from aliquot.engine.effort import Effort
from aliquot.engine.holder import Holder, freed, largest, largest_gone, without
from aliquot.engine.one_node.look import fits, try_out
from aliquot.engine.one_node.obstacles import no_room, unwanted
from aliquot.engine.state import NodeState
from aliquot.model import Gpu, Request

_MAX_HOLDERS = 64
_MAX_SETS_OF_CARDS = 300
_STEPS = 1000
_NODES = 32
"""The search for the cheapest set looks at this many nodes: those that a first look finds cheapest."""

_GONE_STEPS, _STEPS_FOR_GONE, _COUNTED_STEPS = 5, 3, 8
"""Per pod: the cost of trying the node without it, without the largest pods, and of counting how many have to go."""

_Cost = tuple[float, int, tuple[int, int]]


@dataclass(frozen=True)
class VictimSet:
    """`proven`: there is no cheaper set on the node. Otherwise the search was cut short; the set still makes room, and
    none of its pods can be spared."""

    holders: tuple[Holder, ...]
    proven: bool = True

    @property
    def uids(self) -> list[str]:
        return [holder.uid for holder in self.holders]

    @property
    def cost(self) -> _Cost:
        highest = max((holder.priority for holder in self.holders), default=-inf)
        return highest, len(self.holders), freed(self.holders)


@dataclass(frozen=True)
class Preemption:
    node: str
    victims: VictimSet


def preempt(
    states: Mapping[str, NodeState],
    request: Request,
    holders: Mapping[str, Sequence[Holder]],
    effort: Effort | None = None,
) -> Preemption | None:
    """The node where the request fits at the lowest cost; ties go to the smallest name. No victims if it fits as it is.

    If the effort runs out, the best node so far, or None if there is none yet. None also if no node helps.
    """
    best: Preemption | None = None
    with suppress(_GivenUp):
        for better in _better_and_better(states, request, holders, effort or Effort()):
            best = better
    return best


def _better_and_better(
    states: Mapping[str, NodeState], request: Request, holders: Mapping[str, Sequence[Holder]], effort: Effort
) -> Iterator[Preemption]:
    prices: dict[str, float] = {}
    for node, state in states.items():
        price = _highest(state, request, _evictable(request, holders.get(node, ())), effort)
        if price is not None:
            prices[node] = price
    least = min(prices.values(), default=inf)
    bounds = sorted(
        (_fewest(states[node], request, _up_to(least, request, holders.get(node, ())), effort), node)
        for node, price in prices.items()
        if price == least
    )
    best: Preemption | None = None
    for fewest, node in bounds[:_NODES]:
        if best is not None and fewest > len(best.victims.holders):
            break
        victims = _cheapest(states[node], request, holders.get(node, ()), effort)
        assert victims is not None, "a first look found a set"
        if best is None or victims.cost < best.victims.cost:
            best = Preemption(node, victims)
            yield best


def _cheapest(state: NodeState, request: Request, holders: Sequence[Holder], effort: Effort) -> VictimSet | None:
    """The cheapest set of lower-priority pods whose end makes the request fit on a node. None if no set does."""
    request = request.on(state.cards)
    highest = _highest(state, request, _evictable(request, holders), effort)
    if highest is None:
        return None
    candidates = _up_to(highest, request, holders)
    return _VictimSearch(state, request, candidates, effort).run() if candidates else VictimSet(())


def complete(
    state: NodeState,
    request: Request,
    proposed: Sequence[str],
    holders: Sequence[Holder],
    effort: Effort | None = None,
) -> list[str] | None:
    """Completes a set of victims that kube-scheduler proposes for a node, by UID, with the pods that must end for the
    GPUs.

    Proposed pods stay in the set even if they hold no GPU: they may free something else. None: drop the node, also if
    the effort was used up before a set was found.
    """
    effort, ending = effort or Effort(), set(proposed)
    try:
        left = _without(state, [holder for holder in holders if holder.uid in ending], effort)
        more = _cheapest(left, request, [holder for holder in holders if holder.uid not in ending], effort)
    except _GivenUp:
        return None
    return None if more is None else [*proposed, *more.uids]


def fits_without(state: NodeState, request: Request, holders: Iterable[Holder], effort: Effort) -> bool:
    """Whether a request fits on a node once these pods have ended."""
    return fits(without(state, holders), request, effort)


class _GivenUp(Exception):
    """The effort ran out."""


def _fits(state: NodeState, request: Request, effort: Effort) -> bool:
    found = try_out(state, request, effort)
    if effort.ran_out:
        raise _GivenUp
    return found.fits


def _without(state: NodeState, holders: Sequence[Holder], effort: Effort) -> NodeState:
    _spend(effort, _GONE_STEPS * len(holders))
    return without(state, holders)


def _largest_gone(state: NodeState, holders: Sequence[Holder], count: int, effort: Effort) -> NodeState:
    _spend(effort, _STEPS_FOR_GONE * len(holders))
    return largest_gone(state, holders, count)


def _spend(effort: Effort, steps: int) -> None:
    if not effort.take(steps):
        raise _GivenUp


def _evictable(request: Request, holders: Sequence[Holder]) -> list[Holder]:
    lower = (holder for holder in holders if holder.priority < request.priority and holder.uid != request.uid)
    return sorted(lower, key=lambda holder: (holder.priority, holder.uid))


def _up_to(highest: float, request: Request, holders: Sequence[Holder]) -> list[Holder]:
    return [holder for holder in _evictable(request, holders) if holder.priority <= highest]


def _highest(state: NodeState, request: Request, evictable: Sequence[Holder], effort: Effort) -> float | None:
    """The lowest priority up to which pods have to be evicted; -inf if no pod has to be, None if eviction does not
    help."""
    if _fits(state, request, effort):
        return -inf
    if not evictable or not _fits(_without(state, evictable, effort), request, effort):
        return None
    steps = sorted({holder.priority for holder in evictable})
    enough = bisect_left(
        steps,
        True,
        key=lambda step: _fits(
            _without(state, [holder for holder in evictable if holder.priority <= step], effort), request, effort
        ),
    )
    return steps[enough]


def _fewest(state: NodeState, request: Request, candidates: Sequence[Holder], effort: Effort) -> int:
    """No set of fewer pods makes room. Perhaps no set of this many does either."""
    return bisect_left(
        range(len(candidates)),
        True,
        key=lambda count: _fits(_largest_gone(state, candidates, count, effort), request, effort),
    )


def _spare(state: NodeState, request: Request, ending: Sequence[Holder], effort: Effort) -> list[Holder]:
    """Spares every pod that can stay: first those with the highest priority, then those that would give back most, then
    by UID."""
    kept = sorted(ending, key=lambda holder: (-holder.priority, *(-size for size in freed([holder])), holder.uid))
    for holder in tuple(kept):
        others = [other for other in kept if other is not holder]
        if _fits(_without(state, others, effort), request, effort):
            kept = others
    return sorted(kept, key=lambda holder: (holder.priority, holder.uid))


class _OutOfSteps(Exception):
    pass


class _VictimSearch:
    """Branch and bound over the pods, for one set of cards after another: what pods hold on other cards does not
    matter."""

    def __init__(self, state: NodeState, request: Request, candidates: Sequence[Holder], effort: Effort) -> None:
        self.state = state
        self.request = request
        self.effort = effort
        self.candidates = candidates
        self.steps = 0
        self.best: tuple[int, tuple[int, int], tuple[Holder, ...]]

    def run(self) -> VictimSet:
        rough = _spare(self.state, self.request, self.candidates, self.effort)
        self.best = (len(rough), freed(rough), tuple(rough))
        try:
            return self._improve()
        except _GivenUp:
            return VictimSet(tuple(rough), proven=False)

    def _improve(self) -> VictimSet:
        # an agent that gives cards to one container after another may succeed on fewer cards and fail on more
        proven = len(self.candidates) <= _MAX_HOLDERS and not self.request.allocator
        try:
            for gpus in self._sets_of_cards() if proven else ():
                uuids = {gpu.uuid for gpu in gpus}
                state = self.state.closed(self.state.cards.by_uuid.keys() - uuids)
                self._take(state, (), [h for h in self.candidates if not uuids.isdisjoint(h.charges)])
        except _OutOfSteps:
            proven = False
        return VictimSet(tuple(_spare(self.state, self.request, self.best[2], self.effort)), proven)

    def _sets_of_cards(self) -> Iterator[tuple[Gpu, ...]]:
        """Every set of cards that the request could get, or all cards at once if there are too many sets."""
        state, request = self.state, self.request
        gpus = tuple(gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None)
        wanted = [container.part.cards for container in request.containers]
        most = min(len(gpus), max(wanted) if request.together else sum(wanted))
        if comb(len(gpus), most) > _MAX_SETS_OF_CARDS:
            return iter((gpus,))
        return combinations(gpus, most)

    def _take(self, state: NodeState, taken: tuple[Holder, ...], left: Sequence[Holder]) -> None:
        """Tries every set of `taken` and some of `left` that could be cheaper than the best set so far."""
        if self._fits(_without(state, taken, self.effort)):
            self.best = min(self.best, (len(taken), freed(taken), taken), key=lambda found: found[:2])
            return
        while left and self._can_win(state, taken, left):
            first = left[0]
            self._take(state, (*taken, first), left[1:])
            # a pod with the same charges as the one just left out makes no difference
            left = [holder for holder in left[1:] if holder.charges != first.charges]

    def _can_win(self, state: NodeState, taken: tuple[Holder, ...], left: Sequence[Holder]) -> bool:
        """Whether some of the pods left could make a cheaper set, judged by a lower bound on the cost of any set."""
        now = _without(state, taken, self.effort)
        fewest = self._fewest(now, left)
        if fewest is None:
            return False
        each = [freed([holder]) for holder in left]
        mib, cores = (sum(sorted(sizes)[:fewest]) for sizes in zip(*each, strict=True))
        before = freed(taken)
        if (len(taken) + fewest, (before[0] + mib, before[1] + cores)) >= self.best[:2]:
            return False
        return self._fits(_largest_gone(now, left, self.best[0] - len(taken), self.effort))

    def _fewest(self, state: NodeState, left: Sequence[Holder]) -> int | None:
        """The least number of pods that have to go so that enough cards can take a part each; None if that is
        impossible."""
        _spend(self.effort, _COUNTED_STEPS * len(left))
        parts = {container.part for container in self.request.containers}
        cards = max(part.cards for part in parts)
        counts = []
        for gpu in state.cards.gpus:
            if state.cards.sells(gpu):
                held = [holder.charges[gpu.uuid] for holder in left if gpu.uuid in holder.charges]
                ways = (
                    count
                    for count in range(len(held) + 1)
                    if any(no_room(state.minus({gpu.uuid: largest(held, count)}), gpu, part) is None for part in parts)
                )
                counts.append(next(ways, None))
        possible = sorted(count for count in counts if count is not None)
        if len(possible) < cards:
            return None
        widest = max(len(holder.charges) for holder in left)
        return max(1, ceil(sum(possible[:cards]) / widest))

    def _fits(self, state: NodeState) -> bool:
        self.steps += 1
        if self.steps > _STEPS:
            raise _OutOfSteps
        return _fits(state, self.request, self.effort)

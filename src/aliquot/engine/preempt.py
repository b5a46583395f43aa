"""Which pods of lower priority have to end so that a request fits: the cheapest set, on each node and over all.

Cheapest is, in this order: the lowest highest priority, the fewest pods, the least memory and cores given back.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb, inf

from aliquot.engine.holder import Holder, freed, largest, largest_gone, without
from aliquot.engine.state import NodeState
from aliquot.engine.why.obstacles import no_room, unwanted
from aliquot.engine.why.whatif import closed, fits
from aliquot.model import Gpu, Request

_MOST_HOLDERS = 64
_MOST_SETS_OF_CARDS = 300
_STEPS = 1000
_NODES = 32
"""Nodes on which the cheapest set is sought, of those that a first look finds cheapest."""

_Cost = tuple[float, int, tuple[int, int]]


@dataclass(frozen=True)
class Victims:
    """`proven`: there is no cheaper set on the node. Otherwise the search was cut short; the set does make room, and
    none of its pods can be left out."""

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
    victims: Victims


def preempt(
    states: Mapping[str, NodeState], request: Request, holders: Mapping[str, Sequence[Holder]]
) -> Preemption | None:
    """The node where the request fits at the lowest price; equal ones by name. Without victims if it fits as it is."""
    prices: dict[str, float] = {}
    for node, state in states.items():
        price = _highest(state, request, _evictable(request, holders.get(node, ())))
        if price is not None:
            prices[node] = price
    least = min(prices.values(), default=inf)
    bounds = sorted(
        (_fewest(states[node], request, _up_to(least, request, holders.get(node, ()))), node)
        for node, price in prices.items()
        if price == least
    )
    best: Preemption | None = None
    for fewest, node in bounds[:_NODES]:
        if best is not None and fewest > len(best.victims.holders):
            break
        victims = cheapest(states[node], request, holders.get(node, ()))
        assert victims is not None, "a first look found a set"
        if best is None or victims.cost < best.victims.cost:
            best = Preemption(node, victims)
    return best


def cheapest(state: NodeState, request: Request, holders: Sequence[Holder]) -> Victims | None:
    """The cheapest set of lower-priority pods whose end makes the request fit on a node; None if no set does."""
    request = request.on(state.cards)
    highest = _highest(state, request, _evictable(request, holders))
    if highest is None:
        return None
    candidates = _up_to(highest, request, holders)
    return _Search(state, request, candidates).run() if candidates else Victims(())


def complete(
    state: NodeState, request: Request, proposed: Sequence[str], holders: Sequence[Holder]
) -> list[str] | None:
    """A set that kube-scheduler proposes for a node, by UID, with those that are missing for the GPUs.

    What is proposed stays, also pods that hold no GPU: they may free something else. None: drop the node.
    """
    ending = set(proposed)
    left = without(state, (holder for holder in holders if holder.uid in ending))
    more = cheapest(left, request, [holder for holder in holders if holder.uid not in ending])
    return None if more is None else [*proposed, *more.uids]


def _evictable(request: Request, holders: Sequence[Holder]) -> list[Holder]:
    lower = (holder for holder in holders if holder.priority < request.priority and holder.uid != request.uid)
    return sorted(lower, key=lambda holder: (holder.priority, holder.uid))


def _up_to(highest: float, request: Request, holders: Sequence[Holder]) -> list[Holder]:
    return [holder for holder in _evictable(request, holders) if holder.priority <= highest]


def _highest(state: NodeState, request: Request, evictable: Sequence[Holder]) -> float | None:
    """The lowest priority up to which pods have to be evicted; -inf if none has to, None if that does not help."""
    if fits(state, request):
        return -inf
    if not evictable or not fits(without(state, evictable), request):
        return None
    steps = sorted({holder.priority for holder in evictable})
    enough = bisect_left(
        steps, True, key=lambda step: fits(without(state, (h for h in evictable if h.priority <= step)), request)
    )
    return steps[enough]


def _fewest(state: NodeState, request: Request, candidates: Sequence[Holder]) -> int:
    """No set of fewer pods makes room; perhaps none of as many does."""
    return bisect_left(
        range(len(candidates)),
        True,
        key=lambda count: fits(largest_gone(state, candidates, count), request),
    )


def _spare(state: NodeState, request: Request, ending: Sequence[Holder]) -> list[Holder]:
    """Let every pod stay that can: first those with the highest priority, then those that would give back most, then by
    UID."""
    kept = sorted(ending, key=lambda holder: (-holder.priority, *(-size for size in freed([holder])), holder.uid))
    for holder in tuple(kept):
        others = [other for other in kept if other is not holder]
        if fits(without(state, others), request):
            kept = others
    return sorted(kept, key=lambda holder: (holder.priority, holder.uid))


class _OutOfSteps(Exception):
    pass


class _Search:
    """Branch and bound over the pods, for one set of cards after another: what is held on other cards does not
    matter."""

    def __init__(self, state: NodeState, request: Request, candidates: Sequence[Holder]) -> None:
        self.state = state
        self.request = request
        self.candidates = candidates
        self.steps = 0
        self.best: tuple[int, tuple[int, int], tuple[Holder, ...]]

    def run(self) -> Victims:
        rough = _spare(self.state, self.request, self.candidates)
        self.best = (len(rough), freed(rough), tuple(rough))
        # an agent that gives cards to one container after another may find a way on fewer cards and none on more
        proven = len(self.candidates) <= _MOST_HOLDERS and not self.request.allocator
        try:
            for gpus in self._sets_of_cards() if proven else ():
                uuids = {gpu.uuid for gpu in gpus}
                state = closed(self.state, self.state.cards.by_uuid.keys() - uuids)
                self._take(state, (), [h for h in self.candidates if not uuids.isdisjoint(h.charges)])
        except _OutOfSteps:
            proven = False
        return Victims(tuple(_spare(self.state, self.request, self.best[2])), proven)

    def _sets_of_cards(self) -> Iterator[tuple[Gpu, ...]]:
        """Every set of cards that the request could get, or all cards at once if these are too many."""
        state, request = self.state, self.request
        gpus = tuple(gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None)
        wanted = [container.part.cards for container in request.containers]
        most = min(len(gpus), max(wanted) if request.together else sum(wanted))
        if comb(len(gpus), most) > _MOST_SETS_OF_CARDS:
            return iter((gpus,))
        return combinations(gpus, most)

    def _take(self, state: NodeState, taken: tuple[Holder, ...], left: Sequence[Holder]) -> None:
        """Try every set of `taken` and some of `left` that could be cheaper than the best one known."""
        if self._fits(without(state, taken)):
            self.best = min(self.best, (len(taken), freed(taken), taken), key=lambda found: found[:2])
            return
        while left and self._can_win(state, taken, left):
            first = left[0]
            self._take(state, (*taken, first), left[1:])
            # a pod like one that was just left out makes no difference
            left = [holder for holder in left[1:] if holder.charges != first.charges]

    def _can_win(self, state: NodeState, taken: tuple[Holder, ...], left: Sequence[Holder]) -> bool:
        """Whether some of the pods left could make a cheaper set, judged by what no set can do better than."""
        now = without(state, taken)
        fewest = self._fewest(now, left)
        if fewest is None:
            return False
        each = [freed([holder]) for holder in left]
        mib, cores = (sum(sorted(sizes)[:fewest]) for sizes in zip(*each, strict=True))
        before = freed(taken)
        if (len(taken) + fewest, (before[0] + mib, before[1] + cores)) >= self.best[:2]:
            return False
        return self._fits(largest_gone(now, left, self.best[0] - len(taken)))

    def _fewest(self, state: NodeState, left: Sequence[Holder]) -> int | None:
        """So many pods at least have to go for enough cards to take a part each; None if that is impossible."""
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
        return fits(state, self.request)

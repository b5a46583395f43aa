"""Orders of arrival: as listed, at their times, or shuffled."""

import random
from collections.abc import Sequence
from dataclasses import replace

from aliquot.engine.workload import WHOLE
from aliquot.errors import BadInput
from aliquot.simulate.demand import Demands
from aliquot.simulate.scenario import Arrival, Order, World

_MAX_ARRIVALS = 1_000_000
_MAX_SEEDS = 10_000
_LONGEST_RANGE = 64
"""Characters."""


def by_time(world: World, *, departures: bool) -> Order:
    """By the pods' own times; pods with the same time in the order of the list. Pods leave only with `departures`."""
    numbers = sorted(range(len(world.pods)), key=lambda number: world.pods[number].arrives)
    pods = [(number, world.pods[number]) for number in numbers]
    arrivals = [Arrival(number, pod.arrives, pod.leaves if departures else None) for number, pod in pods]
    return Order("by time" if departures else "listed", arrivals)


def shuffled(world: World, seed: int, arrived: float) -> Order:
    """Every pod once, shuffled, then pods drawn from the list until so many percent of the cluster's cards were asked
    for. Of a longer list, the first pods of the shuffle up to there. Nodes stand in an order of their own, too."""
    chance = random.Random(seed)
    demands = Demands(world.nodes)
    sizes = [demands.of(pod) for pod in world.pods]
    if not sum(sizes):
        raise BadInput("no pod asks for a GPU: there is nothing to shuffle until the cluster is full")
    most = arrived / 100 * world.capacity * WHOLE
    numbers = list(range(len(world.pods)))
    chance.shuffle(numbers)
    drawn, total = list[int](), 0
    while len(drawn) < _MAX_ARRIVALS:
        number = numbers[len(drawn)] if len(drawn) < len(numbers) else chance.randrange(len(world.pods))
        if total + sizes[number] > most:
            break
        total += sizes[number]
        drawn.append(number)
    ranks = list(range(len(world.nodes)))
    chance.shuffle(ranks)
    return Order(str(seed), [Arrival(number, at) for at, number in enumerate(drawn)], ranks)


def first_part(order: Order, world: World, arrived: float) -> Order:
    """The arrivals until so many percent of the cluster's cards were asked for."""
    demands, most, total = Demands(world.nodes), arrived / 100 * world.capacity * WHOLE, 0
    for count, arrival in enumerate(order.arrivals):
        total += demands.of(world.pods[arrival.pod])
        if total > most:
            return replace(order, arrivals=order.arrivals[:count])
    return order


def leaving(order: Order, world: World, load: float) -> Order:
    """The same arrivals, but pods leave again: each stays until, on average, `load` percent of the cluster's cards were
    asked for after it. If every pod fitted, the cluster would settle at that load."""
    chance = random.Random(f"leaving {order.name}")
    demands, stay = Demands(world.nodes), load / 100 * world.capacity * WHOLE
    arrivals, total = list[Arrival](), 0.0
    for arrival in order.arrivals:
        total += demands.of(world.pods[arrival.pod])
        arrivals.append(Arrival(arrival.pod, total, total + chance.expovariate(1 / stay)))
    return replace(order, arrivals=arrivals)


def parsed_seeds(text: str) -> Sequence[int]:
    """`42-51`, or `1,2,7`. Raises BadInput."""
    seeds = list[int]()
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(item) > _LONGEST_RANGE:
            raise BadInput(f"seeds: {text!r} is not a list such as 42-51 or 1,2,7")
        found = range(int(first), int(last if dash else first) + 1)
        if not 0 < len(found) <= _MAX_SEEDS:
            raise BadInput(f"seeds: {item.strip()} are {len(found)} seeds; ask for 1 to {_MAX_SEEDS}")
        seeds += found
    return list(dict.fromkeys(seeds))

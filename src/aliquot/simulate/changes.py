"""What if: the same simulation with more nodes, or with more jobs of a class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aliquot.errors import BadInput
from aliquot.simulate.demand import Demands
from aliquot.simulate.making import node_like
from aliquot.simulate.scenario import Arrival, Order, Scene, SimulatedNode, SimulatedPod, World
from aliquot.simulate.selection import parsed_selection

_MOST = 10_000
_TINY = 1e-9
"""Tenths do not add up exactly."""
_Size = tuple[int, int, tuple[str, ...], int, int]


@dataclass(frozen=True)
class MoreNodes:
    model: str
    count: int

    def apply(self, world: World, orders: Sequence[Order]) -> Scene:
        """New nodes are like the most common node of the model, and come last where nodes are equally good. Raises
        BadInput if there is none."""
        alike = Counter(_kind(node) for node in world.nodes if node.model.casefold() == self.model.casefold())
        if not alike:
            models = ", ".join(sorted({node.model for node in world.nodes if node.model}))
            raise BadInput(f"no node has cards of model {self.model!r}; there are {models or 'none'}")
        ((common, _),) = alike.most_common(1)
        like = next(node for node in world.nodes if _kind(node) == common)
        names = {node.name for node in world.nodes}
        numbers = (f"zz-added-{number:04d}" for number in range(len(names) + self.count))
        new = [node_like(like, name) for name in numbers if name not in names][: self.count]
        have = len(world.nodes)
        ranked = [
            replace(order, ranks=[*order.ranks, *range(have, have + self.count)]) if order.ranks else order
            for order in orders
        ]
        return Scene(World([*world.nodes, *new], world.pods), ranked, f"{self.count:+d} {like.model}")


def _kind(node: SimulatedNode) -> tuple[object, ...]:
    gpu = node.cards.gpus[0] if node.cards.gpus else None
    return (node.model, len(node.cards.gpus), gpu.mib if gpu else 0, node.host)


@dataclass(frozen=True)
class MoreJobs:
    """`percent` more pods of a class, or fewer if it is negative."""

    selection: str
    percent: float

    def apply(self, world: World, orders: Sequence[Order]) -> Scene:
        """Copies arrive right after their originals. The whole class grows by the percentage, and every size in it as
        far as whole pods allow. Raises BadInput if the class is empty."""
        demands = Demands(world.nodes)
        chosen = parsed_selection(self.selection, demands)
        sizes = {number: _size(pod, demands) for number, pod in enumerate(world.pods) if chosen(pod)}
        if not sizes:
            raise BadInput(f"no pod is of the class {self.selection!r}")
        changed = [replace(order, arrivals=self._changed(order.arrivals, sizes)) for order in orders]
        return Scene(world, changed, f"{self.selection} {self.percent:+g} %")

    def _changed(self, arrivals: Sequence[Arrival], sizes: Mapping[int, _Size]) -> list[Arrival]:
        # one remainder goes from size to size, so the class as a whole is right
        places = [place for place, arrival in enumerate(arrivals) if arrival.pod in sizes]
        places.sort(key=lambda place: sizes[arrivals[place].pod])
        due = [int(count * (1 + self.percent / 100) + 0.5 + _TINY) for count in range(len(places) + 1)]
        copies = {place: after - before for place, before, after in zip(places, due, due[1:], strict=False)}
        return [arrival for place, arrival in enumerate(arrivals) for _ in range(copies.get(place, 1))]


def _size(pod: SimulatedPod, demands: Demands) -> _Size:
    models = tuple(name for constraint in pod.request.constraints.models for name in constraint.names)
    return demands.of(pod), pod.cards, models, pod.request.host.cpu, pod.request.host.memory


Change = MoreNodes | MoreJobs


def parsed_nodes(text: str) -> MoreNodes:
    """`G2`, or `G2=10`. Raises BadInput."""
    model, _, count = text.rpartition("=") if "=" in text else (text, "", "1")
    if not model or not count.isdecimal() or not 0 < int(count) <= _MOST:
        raise BadInput(f"--add-node: {text!r} is neither a model nor MODEL=NUMBER")
    return MoreNodes(model, int(count))


def parsed_growth(text: str) -> MoreJobs:
    """`cards=8:30%`. Raises BadInput."""
    selection, _, percent = text.rpartition(":")
    try:
        number = float(percent.removesuffix("%"))
    except ValueError:
        number = float("nan")
    if not selection or not -100 <= number <= 10_000:
        raise BadInput(f"--grow: {text!r} is not CLASS:PERCENT, such as cards=8:30% or class=training:-20%")
    return MoreJobs(selection, number)

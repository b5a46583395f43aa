"""How many nodes could be returned: without them, every pod that fits now still fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliquot.simulate.many import Heard, Runner, Task
from aliquot.simulate.results import RunResult
from aliquot.simulate.scenario import SimulatedNode, World


@dataclass(frozen=True)
class Returnable:
    """These nodes of one model, or of any model if it is empty, of the `of` nodes that hold no pod that stays."""

    policy: str
    model: str
    of: int
    nodes: tuple[str, ...]
    cards: int


def returnable(
    runner: Runner, world: World, tasks: Sequence[Task], now: Sequence[RunResult], done: Heard | None = None
) -> list[Returnable]:
    """For any model, and for each model alone. `tasks` are the orders of one policy, and `now` their results: no order
    may get worse. The nodes that had least to do go first. This is a search: perhaps even more nodes could go."""
    search = _Search(runner, world, tasks, now, done)
    idle_first = sorted(world.nodes, key=lambda node: (search.peak(node.name), node.name))
    candidates = [node for node in idle_first if node.sellable and node.can_go]
    models = sorted({node.model for node in candidates})
    found = [search.found(model, [node for node in candidates if node.model == model]) for model in models]
    mixed = search.found("", candidates)
    largest = max((mixed, *found), key=lambda each: (each.cards, len(each.nodes)))
    return [replace(largest, model="", of=mixed.of), *found]


class _Search:
    def __init__(
        self, runner: Runner, world: World, tasks: Sequence[Task], now: Sequence[RunResult], done: Heard | None
    ) -> None:
        self._runner, self._tasks, self._now, self._done = runner, tasks, now, done
        self._places = {node.name: place for place, node in enumerate(world.nodes)}
        self._nodes = sum(node.sellable > 0 for node in world.nodes)

    def peak(self, node: str) -> tuple[int, int]:
        """The most that it had to do in any order: cards, and CPU."""
        peaks = [each.peaks[node] for each in self._now]
        return max(cards for cards, _ in peaks), max(cpu for _, cpu in peaks)

    def found(self, model: str, nodes: Sequence[SimulatedNode]) -> Returnable:
        names = self._most([node.name for node in nodes])
        cards = sum(node.sellable for node in nodes[: len(names)])
        return Returnable(self._tasks[0].policy.name, model, len(nodes), tuple(names), cards)

    def _most(self, names: Sequence[str]) -> Sequence[str]:
        """The longest beginning that can go, as far as every shorter one can: tries as many lengths at once as there
        are processes."""
        good, bad = 0, len(names) + 1
        if len(names) == self._nodes:
            bad = len(names)  # a cluster without any card is none
        while bad - good > 1:
            tried = min(bad - good - 1, max(1, self._runner.jobs // len(self._tasks)))
            lengths = sorted({good + (bad - good) * step // (tried + 1) for step in range(1, tried + 1)})
            for length, fine in zip(lengths, self._can_go(names, lengths), strict=True):
                if not fine:
                    bad = length
                    break
                good = length
        return names[:good]

    def _can_go(self, names: Sequence[str], lengths: Sequence[int]) -> list[bool]:
        tasks = [
            replace(
                task, without=frozenset(map(self._places.__getitem__, names[:length])), may_fail=frozenset(now.failed)
            )
            for length in lengths
            for task, now in zip(self._tasks, self._now, strict=True)
        ]
        results = self._runner.run(tasks, self._done)
        width = len(self._tasks)
        return [self._is_fine(results[start : start + width]) for start in range(0, len(results), width)]

    def _is_fine(self, results: Sequence[RunResult]) -> bool:
        return all(set(then.failed) <= set(now.failed) for then, now in zip(results, self._now, strict=True))

"""GPU that stays idle on the openb trace, in the orders that FGD's authors published: with FGD and best fit against
their figures, and with `lookahead` against FGD.

FGD and best fit know the workload, as in the paper. `lookahead` learns it from the pods that come. The bound of the
default list is that of a scheduler which places every pod as long as any placement of all pods so far exists. With
departures, pods leave so that the cluster would settle at a load if every pod fitted, and both learn the workload.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

from aliquot.simulate.csv_lists import read_nodes, read_pods
from aliquot.simulate.many import Runner, Task
from aliquot.simulate.orders import leaving, shuffled
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.published_order import read_order
from aliquot.simulate.results import RunResult
from aliquot.simulate.scenario import Order, Scene, World
from bench.measuring import Row, say

PEER = "the published figures, or FGD in the same orders; means over the seeds 42 to 51"
RATIO = "ratio = ours / peer, of what is not allocated: below 1 ours is better"
QUICK = True

_OPENB = Path(__file__).parents[2] / "shared" / "data" / "openb"
_SEEDS = range(42, 52)
_MARKS = (100, 130)
_PUBLISHED = {
    "default": {"fgd": (95.23, 95.39), "bestfit": (92.86, 93.08)},
    "cpu100": {"fgd": (95.21, 95.35), "bestfit": (93.26, 93.44)},
    "gpushare40": {"fgd": (93.96, 94.15), "bestfit": (91.44, 91.69)},
    "multigpu20": {"fgd": (95.53, 95.65), "bestfit": (93.73, 93.93)},
    "gpuspec10": {"fgd": (94.66, 94.95), "bestfit": (93.10, 93.30)},
}
"""Allocation at 100 and 130 percent of arrived cards."""
_BOUND = 96.44
_LOADS = (110, 130)
_SHUFFLES = range(1, 6)
_UNTIL = 300
"""Percent of the cards that pods ask for in all, while others leave."""
_OURS = "lookahead"
_UNIT = "% of cards"


def run(*, quick: bool = False) -> Iterator[Row]:
    if not _OPENB.exists():
        say(f"the openb trace is not in {_OPENB}")
        return
    for name, published in _PUBLISHED.items():
        say(f"list {name}")
        found = _runs(name, list(published), _SEEDS[:1] if quick else _SEEDS)
        for policy, figures in published.items():
            for mark, figure in zip(_MARKS, figures, strict=True):
                yield _row(f"{name}, {mark} %: {policy}, published", _idle(found[policy], mark), 100 - figure, _UNIT)
        for mark in _MARKS:
            ours, fgd = _idle(found[_OURS], mark), _idle(found["fgd"], mark)
            yield _row(f"{name}, {mark} %: {_OURS}, fgd", ours, fgd, _UNIT)
        if name == "default":
            yield _row(f"{name}, 130 %: {_OURS}, bound", _idle(found[_OURS], 130), 100 - _BOUND, _UNIT)
        several = [mean(each.failed_multi for each in found[policy]) for policy in (_OURS, "fgd")]
        yield _row(f"{name}: {_OURS}, fgd: failed multi-card pods", several[0], several[1], "pods")
        seconds = [mean(each.seconds for each in found[policy]) for policy in (_OURS, "fgd")]
        yield _row(f"{name}: {_OURS}, fgd: a run", seconds[0], seconds[1], "s")
        if quick:
            return
    yield from _with_departures()


def _with_departures() -> Iterator[Row]:
    world = _world("default")
    for load in _LOADS:
        say(f"departures, a load of {load} %")
        orders = [leaving(shuffled(world, seed, _UNTIL), world, load) for seed in _SHUFFLES]
        found = _placed(world, orders, {_OURS: False, "fgd": False})
        ours, fgd = (100 - mean(each.settled for each in found[policy]) for policy in (_OURS, "fgd"))
        yield _row(f"default with departures, {load} %: {_OURS}, fgd", ours, fgd, _UNIT)
        several = [mean(each.failed_multi for each in found[policy]) for policy in (_OURS, "fgd")]
        yield _row(f"default with departures, {load} %: failed multi-card pods", several[0], several[1], "pods")


def _runs(name: str, published: list[str], seeds: range) -> dict[str, list[RunResult]]:
    world = _world(name)
    orders = [read_order(_OPENB / "arrivals" / f"{name}_{seed}.txt", world) for seed in seeds]
    return _placed(world, orders, {**dict.fromkeys(published, True), _OURS: False})


def _world(name: str) -> World:
    return World(read_nodes(_OPENB / "openb_node_list_gpu_node.csv"), read_pods(_OPENB / f"openb_pod_list_{name}.csv"))


def _placed(world: World, orders: list[Order], policies: Mapping[str, bool]) -> dict[str, list[RunResult]]:
    """The runs of each policy. A policy that is True knows the workload."""
    tasks = [
        Task(parsed_policy(policy), know_workload=knows, order=order)
        for policy, knows in policies.items()
        for order in range(len(orders))
    ]
    with Runner([Scene(world, orders)], len(os.sched_getaffinity(0))) as runner:
        results = runner.run(tasks, _tell)
    return {policy: [each for each in results if each.policy == policy] for policy in policies}


def _tell(run: RunResult) -> None:
    say(f"  {run.policy} {run.order}: {run.points[-1].allocation:.2f} %")


def _idle(runs: list[RunResult], mark: int) -> float:
    return 100 - mean(each.at(mark).allocation for each in runs)


def _row(case: str, ours: float, peer: float, unit: str) -> Row:
    return Row(case, ours, peer, ours / peer, unit)

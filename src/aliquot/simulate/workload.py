"""The workload of a list of pods: how common each shape is, as FGD's authors count it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from aliquot.engine.gauges import Expected
from aliquot.engine.shape_counts import Shape, shape_of
from aliquot.engine.workload import Workload
from aliquot.model import Host, Memory, Request
from aliquot.simulate.scenario import SimulatedPod


def known_workload(pods: Sequence[SimulatedPod], *, memory: bool = False) -> Workload:
    """Pods without GPU count. What pods ask of their node's memory makes no difference, unless `memory` says so. There
    is at least one pod."""
    counts = Counter(_shape(pod.request, memory=memory) for pod in pods)
    # of equally common shapes, those that ask for more come first
    return Workload.of(dict(sorted(counts.items(), key=lambda item: _size(item[0]), reverse=True)))


def expected(pods: Sequence[SimulatedPod]) -> Expected:
    return Expected.of(known_workload(pods), known_workload(pods, memory=True))


def _shape(request: Request, *, memory: bool) -> Shape:
    host = request.host if memory else Host(request.host.cpu)
    return replace(shape_of(request), host=host) if request.containers else Shape(0, 0, Memory(), False, host)


def _size(shape: Shape) -> tuple[int, bool, int, int, tuple[str, ...]]:
    models = tuple(name for constraint in shape.models for name in constraint.names)
    return shape.host.cpu, shape.whole, shape.memory.amount, shape.cards, models

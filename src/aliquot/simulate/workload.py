"""The workload of a list of pods: how common each shape is, as FGD's authors count it."""

from collections import Counter
from collections.abc import Iterable

from aliquot.engine.shape_counts import Shape, shape_of
from aliquot.engine.workload import Workload
from aliquot.model import Host, Memory, Request
from aliquot.simulate.scenario import SimulatedPod


def known_workload(pods: Iterable[SimulatedPod]) -> Workload:
    """Pods without GPU count; the memory of nodes does not. There is at least one pod."""
    counts = Counter(_shape(pod.request) for pod in pods)
    # of equally common shapes, those that ask for more come first
    return Workload.of(dict(sorted(counts.items(), key=lambda item: _size(item[0]), reverse=True)))


def _shape(request: Request) -> Shape:
    host = Host(request.host.cpu)
    if not request.containers:
        return Shape(0, 0, Memory(), False, host)
    own = shape_of(request)
    return Shape(own.cards, own.cores, own.memory, own.whole, host, own.models, own.slots, own.mig)


def _size(shape: Shape) -> tuple[int, bool, int, int, tuple[str, ...]]:
    models = tuple(name for constraint in shape.models for name in constraint.names)
    return shape.host.cpu, shape.whole, shape.memory.amount, shape.cards, models

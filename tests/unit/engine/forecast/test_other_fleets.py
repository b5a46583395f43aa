"""Kept prices follow the Fleet that is judged, also when it loses a block, and next to other Fleets."""

from aliquot.engine import Fleet, PolicySettings, judge
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Charge, Host, Memory, NodeGpus, Part
from tests.factories import make_gpu
from tests.states import pod

_SHAPES = (
    PodShape(1, 300, 30, cpu=1000),
    PodShape(2, 1000, 2, cpu=9000),
    PodShape(4, 1000, 1, cpu=8000),
    PodShape(16, 1000, 8, cpu=1),
)
_HOST = Host(640_000, 640_000)
_PART = pod(Part(memory=Memory(300)))


def _put(fleet: Fleet, name: str, cards: int, model: str = "Tesla T4", *, full: bool = False) -> None:
    gpus = tuple(make_gpu(row, name, mib=1000, model=model) for row in range(cards))
    fleet.put(NodeGpus(name, gpus, 1), {gpu.uuid: Charge(100, 1000) for gpu in gpus} if full else {})
    fleet.set_host(name, _HOST)


def _scores(fleet: Fleet, settings: PolicySettings) -> dict[str, float]:
    return judge(fleet, _PART, "lookahead", "lookahead", settings).scores(sorted(fleet.nodes))


def test_a_node_replaces_the_only_node_of_its_block() -> None:
    fleet, settings = Fleet(), PolicySettings(workload=Workload(_SHAPES))
    for name, cards in (("a", 4), ("b", 8), ("c", 16)):
        _put(fleet, name, cards)
    _scores(fleet, settings)
    fleet.remove("c")
    _put(fleet, "d", 16, full=True)
    anew = _scores(fleet, PolicySettings(workload=Workload(_SHAPES)))
    assert _scores(fleet, settings) == anew


def test_two_fleets_expect_the_same_workload() -> None:
    one, other, settings = Fleet(), Fleet(), PolicySettings(workload=Workload(_SHAPES))
    _put(one, "a", 4)
    _put(other, "a", 8, "A100")
    before = _scores(one, settings)
    _scores(other, settings)
    assert _scores(one, settings) == before

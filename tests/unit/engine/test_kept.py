"""What policies keep of nodes is what they would work out anew."""

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, Ints, PolicySettings, judge
from aliquot.engine.block import Block
from aliquot.engine.kept import Kept
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Charge, ContainerRequest, Host, Memory, NodeGpus, Part, Request, Unit
from tests.factories import make_gpu

NAMES = ("a", "b", "c", "d")
WHOLE = Part(whole=True)
HALF = Part(memory=Memory(50, Unit.PERCENT))
PAIR = Part(2, whole=True)
PODS = st.sampled_from(((), (WHOLE,), (HALF,), (PAIR,), (HALF, HALF)))
WORKLOAD = Workload((PodShape(1, 1000, 5, cpu=4000), PodShape(1, 500, 3, cpu=1000), PodShape(4, 1000, 1, cpu=9000)))


def cards(node: str, count: int) -> NodeGpus:
    return NodeGpus(node, tuple(make_gpu(index, node) for index in range(count)), 1024)


Change: TypeAlias = tuple[str, int, dict[str, Charge], Host] | None
"""A node as it is from now on: name, cards, what is used, and CPU and memory left; None takes the first one away."""


@st.composite
def changes(draw: st.DrawFn) -> Change:
    if draw(st.integers(0, 5)) == 0:
        return None
    node, count = draw(st.sampled_from(NAMES)), draw(st.integers(0, 4))
    mib = make_gpu().mib
    used = {f"GPU-{node}-{index}": Charge(0, draw(st.sampled_from((0, mib // 2, mib)))) for index in range(count)}
    return node, count, used, Host(draw(st.sampled_from((500, 3000, 8000, 32_000))), 1000)


def applied(fleet: Fleet, change: Change) -> None:
    if change is None:
        fleet.remove(NAMES[0])
    else:
        node, count, used, host = change
        fleet.put(cards(node, count), used)
        fleet.set_host(node, host, Host(32_000, 1000))


@given(st.lists(st.tuples(changes(), PODS, st.booleans(), st.sampled_from((0, 2000))), max_size=12))
def test_fgd_keeps_what_it_would_work_out_anew(steps: list[tuple[Change, tuple[Part, ...], bool, int]]) -> None:
    kept, settings = Fleet(), PolicySettings(workload=WORKLOAD)
    done: list[Change] = []
    for change, parts, together, cpu in steps:
        applied(kept, change)
        done.append(change)
        fresh = Fleet()
        for each in done:
            applied(fresh, each)
        containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
        request = Request("u", "n/p", "aliquot", containers, together and len(parts) > 1, host=Host(cpu))
        ours, anew = (judge(fleet, request, "fgd", "fgd", settings) for fleet in (kept, fresh))
        assert ours.scores(NAMES) == anew.scores(NAMES)
        assert [ours.placement(name) for name in NAMES] == [anew.placement(name) for name in NAMES]


def block(*nodes: str) -> Block:
    made = Block(8)
    for node in nodes:
        made.put(cards(node, 2), {})
    return made


def test_only_nodes_that_changed_are_worked_out() -> None:
    kept, fleet, asked = Kept(), block("a", "b", "c"), list[list[int]]()

    def work_out(columns: Ints) -> Ints:
        asked.append(columns.tolist())
        return columns * 10

    assert kept.numbers(fleet, "x", work_out).tolist() == [0, 10, 20]
    fleet.put(cards("b", 1), {})
    assert kept.numbers(fleet, "x", work_out).tolist() == [0, 10, 20]
    kept.numbers(fleet, "x", work_out)
    kept.numbers(fleet, "y", work_out)
    fleet.put(cards("d", 1), {})
    kept.numbers(fleet, "x", work_out)
    assert asked == [[0, 1, 2], [1], [0, 1, 2], [0, 1, 2, 3]]


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    kept, fleet, asked = Kept(), block("a"), list[int]()

    def numbers(key: int) -> None:
        def work_out(columns: Ints) -> Ints:
            asked.append(key)
            return columns

        kept.numbers(fleet, key, work_out)

    for key in range(128):
        numbers(key)
    numbers(0)
    numbers(128)
    del asked[:]
    for key in (0, 2, 1):
        numbers(key)
    assert asked == [1]

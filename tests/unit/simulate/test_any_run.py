"""Whatever the cluster and the pods: nothing is allocated twice, and what leaves is returned."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Ints, PolicySettings, ShapeCounts
from aliquot.engine.block import Block
from aliquot.engine.gauges import gauge
from aliquot.engine.workload import PodShape, Workload
from aliquot.simulate.policy_names import PolicyPair, parsed_policy
from aliquot.simulate.run import SimulatedCluster, run
from aliquot.simulate.scenario import Arrival, Order, SimulatedNode, SimulatedPod, World
from aliquot.simulate.workload import expected as expected_pods
from aliquot.simulate.workload import known_workload
from tests.unit.simulate.worlds import node, pod

POLICIES = st.sampled_from(["binpack", "fgd", "bestfit", "lookahead", "spread", "tightest"]).map(parsed_policy)
NODES = st.lists(
    st.builds(
        node,
        st.just("n"),
        st.integers(0, 8),
        st.sampled_from(["T4", "A100"]),
        st.integers(0, 20_000),
        st.integers(0, 20_000),
    ),
    min_size=1,
    max_size=4,
)
PODS = st.lists(
    st.one_of(
        st.builds(pod, st.just("share"), st.just(1), st.sampled_from([10, 250, 330, 810])),
        st.builds(pod, st.just("whole"), st.integers(1, 4), models=st.sampled_from([(), ("T4",), ("A100", "V100")])),
        st.builds(pod, st.just("web"), st.just(0), cpu=st.integers(0, 9000), memory=st.integers(0, 9000)),
    ),
    min_size=1,
    max_size=12,
)


def named(nodes: list[SimulatedNode]) -> list[SimulatedNode]:
    return [
        node(f"n{place}", len(each.cards.gpus), each.model or "T4", each.host.cpu, each.host.memory)
        for place, each in enumerate(nodes)
    ]


@given(NODES, PODS, POLICIES, st.data())
def test_nothing_is_allocated_twice_and_what_leaves_is_returned(
    nodes: list[SimulatedNode], pods: list[SimulatedPod], policy: PolicyPair, data: st.DataObject
) -> None:
    cluster = SimulatedCluster(named(nodes))
    settings = PolicySettings(seen=ShapeCounts())
    empty = [{name: array.copy() for name, array in _room(block).items()} for block in cluster.fleet.blocks]
    placed = list[int]()
    for number, each in enumerate(pods):
        if cluster.place(number, each, policy, settings):
            placed.append(number)
        _check(cluster)
        leaving: list[int] = data.draw(st.lists(st.sampled_from(placed), max_size=1)) if placed else []
        for other in leaving:
            placed.remove(other)
            cluster.release(other)
            _check(cluster)
    for number in placed:
        cluster.release(number)
    assert cluster.taken == 0
    for block, before in zip(cluster.fleet.blocks, empty, strict=True):
        for name, array in _room(block).items():
            assert (array == before[name]).all(), name


def _room(block: Block) -> dict[str, Ints]:
    return {name: getattr(block, name) for name in ("free_mib", "free_cores", "host_cpu", "host_memory", "shares")}


def _check(cluster: SimulatedCluster) -> None:
    for block in cluster.fleet.blocks:
        assert min(int(array.min(initial=0)) for array in _room(block).values()) >= 0


@given(NODES, PODS, POLICIES)
def test_what_a_run_reports_adds_up(nodes: list[SimulatedNode], pods: list[SimulatedPod], policy: PolicyPair) -> None:
    if not any(each.cards.gpus for each in nodes):
        return
    world = World(named(nodes), pods)
    order = Order("", [Arrival(number, number) for number in range(len(pods))])
    result = run(world, order, policy)
    last = result.last
    assert result.placed == result.allocated == pytest.approx(sum(each.allocated for each in result.models))
    assert last.idle == pytest.approx(result.cards - result.allocated)
    assert 0 <= last.starved <= last.stranded <= last.idle + 1e-9
    assert 0 <= last.fragments <= last.idle + 1e-9
    assert result.failed_multi <= result.failed_gpu <= len(result.failed) <= result.arrivals == len(pods)
    assert sum(each.cards for each in result.models) == result.cards


@given(NODES, PODS)
def test_the_measures_are_what_their_definitions_say(nodes: list[SimulatedNode], pods: list[SimulatedPod]) -> None:
    cluster, policy, settings = SimulatedCluster(named(nodes)), parsed_policy("spread"), PolicySettings()
    for number, each in enumerate(pods):
        cluster.place(number, each, policy, settings)
    shapes = _common(known_workload(pods))
    weight = sum(shape.weight for shape in shapes)
    fragments = stranded = starved = 0.0
    for name in cluster.fleet.nodes:
        idle = _idle(cluster, name)
        for shape in shapes:
            of_use = _of_use(cluster, name, shape)
            fragments += shape.weight / weight * (sum(idle) - sum(idle[place] for place in of_use))
        expected = _common(known_workload(pods, memory=True))
        used = {place for shape in expected for place in _of_use(cluster, name, shape)}
        with_more = {place for shape in expected for place in _of_use(cluster, name, replace(shape, cpu=0, memory=0))}
        stranded += sum(left for place, left in enumerate(idle) if place not in used)
        starved += sum(left for place, left in enumerate(idle) if place in with_more - used)
    measured = gauge(cluster.fleet, expected_pods(pods))
    assert measured.fragments == pytest.approx(fragments)
    assert (measured.stranded, measured.starved) == (stranded, starved)


def test_every_node_of_a_large_cluster_is_measured() -> None:
    cluster = SimulatedCluster([node(f"n{place:04d}", cpu=0 if place >= 1200 else 1000) for place in range(1500)])
    measured = gauge(cluster.fleet, expected_pods([pod(), pod("pair", 2), pod("large", 3)]))
    assert measured.idle == 3_000_000
    assert measured.fragments == pytest.approx(600_000 + 2_400_000 / 3), "without CPU, or for the large pod"


def _idle(cluster: SimulatedCluster, name: str) -> list[int]:
    state = cluster.fleet.state(name)
    assert state is not None
    return [
        min((gpu.mib - state.taken(gpu).mib) * 1000 // gpu.mib, (100 - state.taken(gpu).cores) * 10)
        for gpu in state.cards.gpus
    ]


def _of_use(cluster: SimulatedCluster, name: str, shape: PodShape) -> list[int]:
    """The cards of a node that the shape can use."""
    state, host, idle = cluster.fleet.state(name), cluster.fleet.host(name), _idle(cluster, name)
    assert state is not None
    takes = [place for place, left in enumerate(idle) if left >= shape.share]
    suits = not shape.models or bool(state.cards.gpus and state.cards.gpus[0].model in shape.models)
    runs = 0 < shape.cards <= len(takes) and suits and host.cpu >= shape.cpu and host.memory >= shape.memory
    return takes if runs else []


def _common(workload: Workload) -> list[PodShape]:
    """Shapes of 95 percent of the pods."""
    shapes, covered = list[PodShape](), 0
    for shape in workload.shapes:
        if covered >= 0.95 * workload.weight:
            break
        covered += shape.weight
        shapes.append(shape)
    return shapes

"""How much of a node stays idle when the expected workload fills it."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.filling import Filling
from aliquot.engine.forecast.streams import streams_for
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload
from aliquot.model import Host

KIND = NodeKind("A100", 81920, 4, Host(48_000, 48 * 4096))


def stays_idle(workload: Workload, idle: Sequence[int], cpu: int = 48_000, memory: int = 48 * 4096) -> float:
    """Of a node with so many thousandths of its cards left."""
    states = np.array(idle, np.int64).reshape(-1, 1)
    (left,) = Filling(workload).idle_after(KIND, states, np.array([cpu]), np.array([memory])).tolist()
    return float(left)


@pytest.mark.parametrize(
    ("shapes", "idle", "left"),
    [
        pytest.param([PodShape(1, 1000, 1)], [1000, 1000], 0.0, id="whole cards fill whole cards"),
        pytest.param([PodShape(1, 1000, 1)], [1000, 900], 0.9, id="what is less than a pod needs stays idle"),
        pytest.param([PodShape(1, 810, 1)], [1000, 1000], 0.38, id="each pod leaves its rest"),
        pytest.param([PodShape(1, 333, 1)], [1000], 0.01, id="three thirds fit on a card"),
        pytest.param([PodShape(2, 1000, 1)], [1000, 1000, 1000], 1.0, id="pairs leave the odd card"),
        pytest.param([PodShape(4, 1000, 1)], [1000, 1000, 1000], 3.0, id="nothing fits"),
        pytest.param([PodShape(9, 1000, 1)], [1000], 1.0, id="more cards than a node has"),
        pytest.param([PodShape(0, 1, 1)], [1000], 1.0, id="pods without GPU use no card"),
        pytest.param([PodShape(1, 1, 1, ("T4",))], [1000], 1.0, id="pods that want another model"),
        pytest.param([PodShape(1, 1, 1, mib=90_000)], [1000], 1.0, id="pods that need a larger card"),
        pytest.param([PodShape(1, 1000, 1, cpu=48_000)], [1000, 1000], 1.0, id="cards for which no CPU is left"),
        pytest.param([PodShape(1, 1000, 1, memory=48 * 4096)], [1000, 1000], 1.0, id="nor memory"),
    ],
)
def test_pods_take_what_they_fit(shapes: list[PodShape], idle: list[int], left: float) -> None:
    assert stays_idle(Workload(tuple(shapes)), idle) == pytest.approx(left)


def test_a_pod_takes_the_fullest_card_that_has_room() -> None:
    """A half on the half card leaves the whole one to the whole pod."""
    halves_and_wholes = Workload((PodShape(1, 500, 1), PodShape(1, 1000, 1)))
    assert stays_idle(halves_and_wholes, [500, 1000]) < stays_idle(halves_and_wholes, [750, 750])


def test_streams_have_every_shape_as_often_as_the_workload() -> None:
    workload = Workload((PodShape(1, 1000, 3), PodShape(1, 500, 1)))
    pods = streams_for(workload, CardModel("A100", 81920), 8).pods
    assert sum(pod.share == 100 for pod in pods) / len(pods) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("rows", [1, 8, 16])
@pytest.mark.parametrize("share", [100, 500, 1000])
def test_every_stream_could_fill_the_node(rows: int, share: int) -> None:
    streams = streams_for(Workload((PodShape(1, share, 1),)), CardModel("A100", 81920), rows)
    assert np.diff(streams.starts).min() * share >= rows * WHOLE


SHAPES = st.builds(
    PodShape,
    cards=st.integers(0, 4),
    share=st.integers(1, WHOLE),
    weight=st.integers(1, 9),
    cpu=st.integers(0, 20_000),
    memory=st.integers(0, 100_000),
)


@given(st.lists(SHAPES, min_size=1, max_size=6), st.lists(st.integers(0, WHOLE), min_size=4, max_size=4), st.data())
def test_never_more_stays_idle_than_there_is(shapes: list[PodShape], idle: list[int], data: st.DataObject) -> None:
    workload = Workload(tuple(shapes))
    left = stays_idle(workload, idle, data.draw(st.integers(-5000, 60_000)), data.draw(st.integers(-5000, 300_000)))
    assert -1e-9 <= left <= (sum(idle) + 4 * 5) / WHOLE
    assert stays_idle(workload, list(reversed(idle))) == stays_idle(workload, idle)


@given(st.lists(SHAPES, min_size=1, max_size=6), st.sampled_from((4, 8, 16, 128)), st.integers(0, 1 << 32))
def test_many_nodes_are_filled_at_once_as_one_by_one(shapes: list[PodShape], rows: int, seed: int) -> None:
    chance, count = np.random.default_rng(seed), 70
    idle = chance.integers(0, 2, (rows, count)) * chance.integers(0, 2 * WHOLE, (rows, count)).clip(0, WHOLE)
    cpu, memory = chance.integers(-5000, 60_000, count), chance.integers(-5000, 300_000, count)
    at_once, filling = Filling(Workload(tuple(shapes))), Filling(Workload(tuple(shapes)))
    singly = [filling.idle_after(KIND, idle[:, [n]], cpu[[n]], memory[[n]]).item() for n in range(count)]
    assert at_once.idle_after(KIND, idle, cpu, memory).tolist() == singly

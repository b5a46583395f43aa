"""Random nodes and requests of every kind, small enough to try every way."""

from typing import Any

from hypothesis import strategies as st

from aliquot.engine.state import NodeState
from aliquot.model import (
    ANY_MIG,
    Charge,
    Constraints,
    ContainerRequest,
    Gpu,
    Life,
    Link,
    Memory,
    Mode,
    ModelConstraint,
    NodeGpus,
    Part,
    Request,
    Topology,
    Unit,
)
from tests.factories import make_gpu

MODELS = ("Tesla T4", "NVIDIA A100-SXM4-40GB")


@st.composite
def node_states(draw: st.DrawFn, node: str = "n0", most: int = 4) -> NodeState:
    count = draw(st.integers(0, most))
    gpus = tuple(draw(_gpus(index, node)) for index in range(count))
    dialects = draw(st.sampled_from([frozenset(), frozenset(), frozenset({"aliquot"}), frozenset({"other"})]))
    cards = NodeGpus(node, gpus, draw(st.sampled_from([1, 4])), dialects, observed=draw(st.booleans()))
    used = {gpu.uuid: draw(_charges(gpu)) for gpu in gpus if draw(st.booleans())}
    return NodeState(cards, used)


@st.composite
def _gpus(draw: st.DrawFn, index: int, node: str) -> Gpu:
    fields: dict[str, Any] = {
        "mib": draw(st.sampled_from([8, 12, 12, 12, 13])),
        "model": draw(st.sampled_from(MODELS)),
        "numa": draw(st.sampled_from([None, 0, 0, 1])),
        "healthy": draw(st.integers(0, 6)) > 0,
        "cordoned": draw(st.integers(0, 6)) == 0,
        "slots": draw(st.sampled_from([0, 2, 4])),
        "mode": draw(st.sampled_from([Mode.ANY, Mode.ANY, Mode.ANY, *Mode])),
        "links": tuple(Link(make_gpu(other, node).uuid, 150) for other in range(index) if draw(st.integers(0, 2)) > 0),
    }
    if index and draw(st.integers(0, 6)) == 0:
        fields |= {"parent": make_gpu(0, node).uuid, "profile": "1g.5gb"}
    return make_gpu(index, node, **fields)


@st.composite
def _charges(draw: st.DrawFn, gpu: Gpu) -> Charge:
    cores, mib = draw(st.sampled_from([0, 30, 50, 100, 120])), draw(st.integers(0, gpu.mib + 1))
    # slots may be taken of a card that has none any more
    return Charge(cores, mib, slots=draw(st.integers(1, 4))) if draw(st.booleans()) else Charge(cores, mib, shares=1)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    cards = draw(st.sampled_from([1, 1, 1, 2, 3]))
    kind = draw(st.sampled_from(["shared", "shared", "shared", "whole", "slots"]))
    if kind == "whole":
        return Part(cards=cards, whole=True)
    cores = draw(st.sampled_from([0, 0, 20, 50, 60, 100]))
    if kind == "slots":
        slots = draw(st.integers(1, 3))
        return Part(cards=cards, cores=cores, memory=Memory(slots, Unit.SLOT), slots=slots)
    unit = draw(st.sampled_from([Unit.MIB, Unit.MIB, Unit.NODE, Unit.PERCENT]))
    most = {Unit.MIB: 14, Unit.NODE: 4, Unit.PERCENT: 100}[unit]
    return Part(cards=cards, cores=cores, memory=Memory(draw(st.integers(0, most)), unit))


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    uuids = [make_gpu(index, node).uuid for node in ("n0", "n1") for index in range(3)]
    models = ModelConstraint((draw(st.sampled_from(["T4", "a100"])),), avoid=draw(st.booleans()))
    return Constraints(
        models=draw(st.sampled_from([(), (), (models,)])),
        only_uuids=draw(st.sampled_from([None, None, None, frozenset(uuids[:2] + uuids[3:])])),
        not_uuids=draw(st.sampled_from([frozenset(), frozenset(), frozenset(uuids[1:2])])),
        mig=draw(st.sampled_from(["", "", "", ANY_MIG, "1g.5gb"])),
        topology=draw(st.sampled_from([Topology.ANY, *Topology])),
    )


@st.composite
def requests(draw: st.DrawFn, most: int = 3) -> Request:
    count = draw(st.integers(1, most))
    lives = draw(st.lists(st.sampled_from([Life.MAIN, Life.MAIN, *Life]), min_size=count, max_size=count))
    chosen = [draw(parts()) for _ in range(count)]
    together = draw(st.integers(0, 3)) == 0
    if together:
        chosen = [Part(chosen[0].cards, p.cores, p.memory, p.whole, p.slots) for p in chosen]
    named = enumerate(zip(chosen, lives, strict=True))
    containers = tuple(ContainerRequest(f"c{place}", part, life) for place, (part, life) in named)
    wished = draw(st.one_of(st.just(Constraints()), constraints()))
    return Request("u", "default/p", "aliquot", containers, together=together, constraints=wished)

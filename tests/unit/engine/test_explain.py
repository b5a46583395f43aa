"""Why a pod fits or not, and what would help."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.fleet import Fleet
from aliquot.engine.holder import Holder
from aliquot.engine.judging import judge
from aliquot.engine.one_node.look import fits
from aliquot.engine.one_node.obstacles import obstacle
from aliquot.engine.one_node.search import arrange
from aliquot.engine.quotas.quota import QuotaCheck, check_quota
from aliquot.engine.quotas.quota_map import Quotas
from aliquot.engine.quotas.usage import Census, Usage
from aliquot.engine.state import NodeState
from aliquot.engine.why.explain import Explanation, explain
from aliquot.engine.why.findings import explain_node, node_reason
from aliquot.engine.why.relax import RelaxationKind
from aliquot.model import (
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
    Reason,
    Request,
    Topology,
    Unit,
)
from aliquot.model.observed import can_promise
from tests.factories import T4, make_gpu

GIB = 1024
WHOLE = Part(whole=True)
A100 = "NVIDIA A100-SXM4-40GB"


def gib(amount: int, cores: int = 0, cards: int = 1) -> Part:
    return Part(cards=cards, cores=cores, memory=Memory(amount * GIB))


def node(name: str = "n1", *gpus: Mapping[str, Any], used: Sequence[int] = (), **fields: Any) -> NodeState:
    """`used` are GiB taken of the cards, in order."""
    made = tuple(make_gpu(index, name, **given) for index, given in enumerate(gpus or ({},)))
    taken = {gpu.uuid: Charge(0, amount * GIB, shares=1) for gpu, amount in zip(made, used, strict=False) if amount}
    return NodeState(NodeGpus(name, made, GIB, **fields), taken)


def request(*parts: Part, together: bool = False, **constraints: Any) -> Request:
    containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    return Request("new", "foo/new", "gpushare", containers, together=together, constraints=Constraints(**constraints))


def wish(*names: str) -> tuple[ModelConstraint, ...]:
    return (ModelConstraint(names),)


def told(states: Sequence[NodeState], asked: Request, **more: Any) -> Explanation:
    return explain({state.cards.node: state for state in states}, asked, **more)


def quota(
    states: Sequence[NodeState], asked: Request, entry: Mapping[str, Any], usage: Usage | None = None
) -> QuotaCheck:
    quotas, census = Quotas(), Census()
    quotas.read(json.dumps({"foo": entry}))
    for state in states:
        census.put(state.cards)
    return check_quota(quotas, usage or Usage(), census, asked)


# -- one node


@pytest.mark.parametrize(
    ("state", "asked", "reason", "card"),
    [
        pytest.param(node(), request(gib(3)), None, "can take it: 15,360 MiB and 100 % of cores left", id="fits"),
        pytest.param(
            node(used=[8]),
            request(gib(8)),
            Reason.NO_CARD_FITS,
            "has 7168 MiB left; the pod needs 8192 MiB",
            id="full",
        ),
        pytest.param(
            node(),
            request(gib(16)),
            Reason.TOO_LARGE,
            "has 15360 MiB left; the pod needs 16384",
            id="too large",
        ),
        pytest.param(
            node(),
            request(gib(1), models=wish("A100")),
            Reason.WRONG_MODEL,
            "is not a model that the pod asks for",
            id="model",
        ),
        pytest.param(
            node("n1", {"healthy": False}), request(gib(1)), Reason.NOT_SELLABLE, "is unhealthy", id="unhealthy"
        ),
        pytest.param(
            node("n1", {"cordoned": True}), request(gib(1)), Reason.NOT_SELLABLE, "is cordoned", id="cordoned"
        ),
        pytest.param(node("n1", {"mode": Mode.MPS}), request(gib(1)), Reason.WRONG_MODE, "is for MPS only", id="mode"),
        pytest.param(
            node(),
            request(gib(1), not_uuids=frozenset(["GPU-n1-0"])),
            Reason.WRONG_CARD,
            "is not a card that",
            id="card",
        ),
        pytest.param(
            node(dialects=frozenset(["hami"])),
            request(gib(1)),
            Reason.NOT_SERVED,
            "serves hami, not gpushare",
            id="dialect",
        ),
        pytest.param(
            node("n1", {}, {}),
            request(gib(1, cards=2), topology=Topology.NVLINK),
            Reason.NO_TOPOLOGY,
            "can take",
            id="links",
        ),
        pytest.param(
            node(used=[8]),
            request(gib(4), gib(4), together=True),
            Reason.NO_CARD_FITS,
            "the pod needs 8192 MiB",
            id="together",
        ),
        pytest.param(node(), request(gib(1, cards=2)), Reason.TOO_LARGE, "can take it", id="too few cards"),
    ],
)
def test_a_node_and_its_cards_say_why(state: NodeState, asked: Request, reason: Reason | None, card: str) -> None:
    found = explain_node(state, asked)
    assert found.reason is reason
    assert card in found.cards[0].text()
    assert found.text().splitlines()[0] == f"n1: {reason.value if reason else 'the pod fits'}"


def test_a_node_without_cards_says_so() -> None:
    assert explain_node(NodeState(NodeGpus("n1", (), 1), {}), request(gib(1))).reason is Reason.NO_GPUS


@pytest.mark.parametrize(
    ("entry", "fields", "reason", "card"),
    [
        pytest.param(
            {"quota": {"T4": 0}}, {}, Reason.OVER_QUOTA, "T4: 0 of 0 cards used, the pod needs 0.20", id="used up"
        ),
        pytest.param({"quota": {"A100": 1}}, {}, Reason.NOT_IN_QUOTA, "the quota is for A100 only", id="not named"),
        pytest.param({"quota": {"T4": 1}, "pool": ["a"]}, {"pool": "b"}, Reason.WRONG_POOL, "is in pool b", id="pool"),
        pytest.param({"quota": {"T4": 1}, "pool": ["a"]}, {}, Reason.WRONG_POOL, "without a pool", id="no pool"),
        pytest.param({"quota": {"T4": 1}, "pool": ["a"]}, {"pool": "a"}, None, "can take it", id="allowed"),
    ],
)
def test_a_quota_is_told_with_its_numbers(
    entry: Mapping[str, Any], fields: Mapping[str, Any], reason: Reason | None, card: str
) -> None:
    state, asked = node("n1", {}, **fields), request(gib(3))
    found = explain_node(state, asked, quota([state], asked, entry))
    assert found.reason is reason
    assert card in found.cards[0].text()


# -- a cluster


def test_a_cluster_is_summed_up_by_reason() -> None:
    states = [
        *(node(f"v{number}", {"model": "Tesla V100"}) for number in range(3)),
        *(node(f"t{number}", used=[number + 8]) for number in range(2)),
        node("dead", {"healthy": False}),
    ]
    told_now = told(states, request(gib(8), models=wish("T4")))
    assert not told_now.fits
    assert told_now.text().splitlines() == [
        "foo/new needs 8,192 MiB of 1 card",
        "  3 nodes: no GPU of the requested model (Tesla V100)",
        "  2 nodes: not enough room on the node's GPUs now (the freest card has 7,168 MiB left)",
        "  1 node: every GPU that matches is unhealthy or cordoned",
        "It fits",
        "  if memory <= 7,168 MiB",
        "  on Tesla V100",
        "  when card GPU-dead-0 is healthy (on dead)",
    ]


def test_where_it_fits_comes_first_and_nothing_has_to_change() -> None:
    told_now = told([node("a", used=[15]), node("b", used=[15]), node("c")], request(gib(8)))
    assert told_now.fits
    assert told_now.relaxations == ()
    assert told_now.groups[0].text() == "1 node: the pod fits"


def test_an_empty_cluster_is_told_too() -> None:
    assert told([], request(WHOLE)).text().splitlines() == ["foo/new needs 1 whole card", "  there is no node"]


@pytest.mark.parametrize(
    ("states", "asked", "line"),
    [
        pytest.param(
            [node("n1", {}, {}, used=[1])],
            request(replace(WHOLE, cards=2)),
            "not enough room on the node's GPUs now "
            "(the freest card has 15,360 MiB left, at most 1 of 2 cards have room on one node)",
            id="several cards",
        ),
        pytest.param(
            [node()],
            request(gib(16, cores=10)),
            "request exceeds the node's GPUs even when empty "
            "(the largest card has 15,360 MiB, and no node has more than 1 card for the pod)",
            id="too large",
        ),
        pytest.param(
            [node(dialects=frozenset(["hami", "keti"]))],
            request(gib(1)),
            "the node does not serve this kind of GPU request (served: hami; keti)",
            id="another dialect",
        ),
        pytest.param(
            [node(f"n{number}", {"model": f"M{number}"}) for number in range(8)],
            request(gib(1), models=wish("A100")),
            "no GPU of the requested model (M0; M1; M2; M3; M4; M5; 2 more)",
            id="many models",
        ),
    ],
)
def test_a_group_tells_its_numbers(states: Sequence[NodeState], asked: Request, line: str) -> None:
    (group,) = told(states, asked).groups
    assert group.text().partition(": ")[2] == line


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (request(gib(3, cores=20, cards=2)), "3,072 MiB and 20 % of cores of 2 cards"),
        (request(Part(memory=Memory(3, Unit.NODE))), "3 units of memory of 1 card"),
        (request(Part(cores=30, memory=Memory(30, Unit.PERCENT))), "30 % of memory and 30 % of cores of 1 card"),
        (request(Part(slots=2, memory=Memory(2, Unit.SLOT))), "2 slots of memory and 2 MPS slots of 1 card"),
        (request(Part()), "a part of 1 card"),
        (request(gib(1), WHOLE), "c0: 1,024 MiB of 1 card; c1: 1 whole card"),
        (
            request(gib(1), gib(2), together=True),
            "c0: 1,024 MiB of 1 card; c1: 2,048 MiB of 1 card, all on the same cards",
        ),
    ],
)
def test_what_a_pod_asks_for_is_said_in_a_line(asked: Request, text: str) -> None:
    assert told([], asked).text().splitlines()[0] == f"foo/new needs {text}"


# -- what would help


def holder(pod: str, at: str = "n1", **cards: int) -> Holder:
    charges = {f"GPU-{at}-{name[1:]}": Charge(0, amount * GIB, shares=1) for name, amount in cards.items()}
    return Holder(pod, f"foo/{pod}", 0, charges)


@pytest.mark.parametrize(
    ("states", "asked", "texts"),
    [
        pytest.param([node(used=[9]), node("n2", used=[8])], request(gib(9)), ["if memory <= 7,168 MiB"], id="memory"),
        pytest.param(
            [node(used=[9])], request(Part(memory=Memory(9, Unit.NODE))), ["if memory <= 6 units"], id="in units"
        ),
        pytest.param(
            [NodeState(node().cards, {"GPU-n1-0": Charge(70, 0, shares=1)})],
            request(gib(1, cores=50)),
            ["if cores <= 30 %"],
            id="cores",
        ),
        pytest.param(
            [NodeState(node().cards, {"GPU-n1-0": Charge(70, 10 * GIB, shares=1)})],
            request(Part(cores=50, memory=Memory(50, Unit.PERCENT))),
            ["if memory and cores <= 30 % of a card"],
            id="a share of both",
        ),
        pytest.param(
            [NodeState(node("n1", {"slots": 4}).cards, {"GPU-n1-0": Charge(50, 2, slots=2)})],
            request(Part(slots=3)),
            ["if MPS slots <= 2"],
            id="slots",
        ),
        pytest.param(
            [node("n1", {}, {}, {}, {}, used=[1, 1])],
            request(replace(WHOLE, cards=4)),
            ["with 2 cards instead of 4"],
            id="cards",
        ),
        pytest.param(
            [node("n1", {}, {}, used=[9])],
            request(gib(4, cards=2), gib(4, cards=2), together=True),
            [
                "if container c0: memory <= 2,048 MiB",
                "if container c1: memory <= 2,048 MiB",
                "with 1 card instead of 2",
            ],
            id="containers that share cards",
        ),
        pytest.param(
            [node("n1", {}, {}, used=[9, 9])],
            request(gib(5), gib(7)),
            ["if container c1: memory <= 6,144 MiB"],
            id="one container of two",
        ),
        pytest.param(
            [node(), node("n2", {"model": A100, "mib": 40960}), node("n3", {"model": "V100"})],
            request(gib(1), models=wish("H100")),
            ["on NVIDIA A100-SXM4-40GB", "on Tesla T4", "on V100"],
            id="other models",
        ),
        pytest.param(
            [node("n1", {}, {})],
            request(gib(1), only_uuids=frozenset(["GPU-n9-0"])),
            ["without the constraint on cards"],
            id="other cards",
        ),
        pytest.param(
            [node("n1", {}, {})],
            request(gib(1, cards=2), topology=Topology.NVLINK),
            ["with 1 card instead of 2", "without the nvlink topology"],
            id="cards that are not connected",
        ),
        pytest.param(
            [node()], request(gib(1), mig="1g.5gb"), ["without the request for a MIG instance"], id="no instance"
        ),
        pytest.param(
            [node("n1", {"healthy": False, "cordoned": True}), node("n2", {"cordoned": True})],
            request(gib(1)),
            [
                "when card GPU-n1-0 is healthy and uncordoned (on n1)",
                "when card GPU-n2-0 is uncordoned (on n2)",
            ],
            id="cards that are not sold",
        ),
        pytest.param([node()], request(gib(1, cores=101)), ["if cores <= 100 %"], id="more than a card"),
        pytest.param([node(used=[15])], request(WHOLE), [], id="nothing small would help"),
    ],
)
def test_the_nearest_changes_are_named(states: Sequence[NodeState], asked: Request, texts: Sequence[str]) -> None:
    assert sorted(relaxation.text for relaxation in told(states, asked).relaxations) == sorted(texts)


def test_the_smallest_pods_whose_end_would_do_are_named() -> None:
    states = [node("n1", {}, {}, used=[15, 15]), node("n2", used=[14])]
    holders = {
        "n1": [holder("small", c0=3), holder("middle", c0=12), holder("large", c1=15)],
        "n2": [holder("other", "n2", c0=14)],
    }
    told_now = told(states, request(gib(10)), holders=holders)
    assert [each.text for each in told_now.relaxations if each.kind is RelaxationKind.POD_ENDS] == [
        "when pod foo/middle ends (on n1)",
        "when pod foo/other ends (on n2)",
    ]


@pytest.mark.parametrize(
    ("entry", "fields", "text"),
    [
        pytest.param({"quota": {"T4": 1}}, {}, "with quota +1 card of T4", id="cards"),
        pytest.param({"memory": {"T4": "16Gi"}}, {}, "with quota +2,048 MiB of T4", id="memory"),
        pytest.param({"cores": {"T4": 100}}, {}, "with quota +50 % of cores of T4", id="cores"),
        pytest.param({"quota": {"A100": 1}}, {}, "if the quota of foo also covers Tesla T4", id="the model"),
        pytest.param(
            {"quota": {"T4": 9}, "pool": ["a"]}, {"pool": "b"}, "if the quota of foo also covers pool b", id="pool"
        ),
        pytest.param(
            {"quota": {"T4": 9}, "pool": ["a"]}, {}, "if the quota of foo also covers every pool", id="no pool"
        ),
    ],
)
def test_what_a_quota_lacks_is_named(entry: Mapping[str, Any], fields: Mapping[str, Any], text: str) -> None:
    state, asked, usage = node("n1", {}, {}, **fields), request(gib(3, cores=50)), Usage()
    usage.add("old", "foo", state.cards, {"GPU-n1-0": Charge(100, 15 * GIB, shares=1)})
    told_now = told([state], asked, quota=quota([state], asked, entry, usage))
    assert [each.text for each in told_now.relaxations if each.kind is RelaxationKind.QUOTA] == [text]


def test_what_a_quota_closes_is_no_way_out() -> None:
    """Less memory, another model or a repaired card help only where the quota lets the pod."""
    states = [node("n1", used=[14]), node("n2", {"healthy": False}), node("n3", {"model": "V100", "mib": 32 * GIB})]
    asked = request(gib(8), models=wish("T4"))
    told_now = told(states, asked, quota=quota(states, asked, {"quota": {"A100": 1}}))
    assert [each.text for each in told_now.relaxations] == []


# -- explanations and searches agree

GPUS = st.builds(
    lambda model, size, mode, sold, slots, numa: {
        "model": model,
        "mib": size * GIB,
        "mode": mode,
        "healthy": sold != "unhealthy",
        "cordoned": sold == "cordoned",
        "slots": slots,
        "numa": numa,
    },
    st.sampled_from(("Tesla T4", A100)),
    st.sampled_from((4, 8)),
    st.sampled_from((Mode.ANY, Mode.ANY, Mode.TIME_SLICED, Mode.EXCLUSIVE, Mode.MPS)),
    st.sampled_from(("yes", "yes", "yes", "unhealthy", "cordoned")),
    st.sampled_from((0, 4)),
    st.sampled_from((None, 0, 1)),
)
CHARGES = st.one_of(
    st.just(Charge()),
    st.builds(lambda cores, size: Charge(cores, size * GIB, shares=1), st.integers(0, 110), st.integers(0, 9)),
    st.builds(lambda slots: Charge(slots * 25, slots * GIB, slots=slots), st.integers(1, 4)),
)


@st.composite
def node_states(draw: st.DrawFn, name: str) -> NodeState:
    given_gpus = draw(st.lists(GPUS, max_size=3))
    gpus = [make_gpu(index, name, **fields) for index, fields in enumerate(given_gpus)]
    if len(gpus) > 1 and draw(st.booleans()):
        gpus[0] = replace(gpus[0], links=(Link(gpus[1].uuid, draw(st.sampled_from((20, 150)))),))
    served = draw(st.sampled_from((frozenset[str](), frozenset(["gpushare"]), frozenset(["hami"]))))
    model, pool = draw(st.sampled_from(("", "M"))), draw(st.sampled_from(("", "a", "b")))
    used = {gpu.uuid: draw(CHARGES) for gpu in gpus}
    unit_mib, rest_mib = draw(st.sampled_from((1, GIB))), draw(st.sampled_from((0, 0, 5)))
    cards = NodeGpus(name, tuple(gpus), unit_mib, served, model, pool, rest_mib=rest_mib, observed=draw(st.booleans()))
    return NodeState(cards, used)


PARTS = st.one_of(
    st.builds(
        lambda cards, cores, amount, unit: Part(cards=cards, cores=cores, memory=Memory(amount, unit)),
        st.integers(1, 3),
        st.sampled_from((0, 50, 100)),
        st.integers(0, 9),
        st.sampled_from((Unit.NODE, Unit.PERCENT, Unit.MIB)),
    ),
    st.builds(lambda cards: replace(WHOLE, cards=cards), st.integers(1, 3)),
    st.builds(lambda slots: Part(slots=slots, memory=Memory(slots, Unit.SLOT)), st.integers(1, 4)),
)
WISHES = st.builds(
    Constraints,
    models=st.sampled_from(((), (), wish("T4"), (ModelConstraint(("T4",), avoid=True),))),
    not_uuids=st.sampled_from((frozenset[str](), frozenset(["GPU-a-0"]))),
    topology=st.sampled_from((Topology.ANY, Topology.ANY, Topology.NUMA, Topology.NVLINK)),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    parts = draw(st.lists(PARTS, min_size=1, max_size=2))
    together = draw(st.booleans())
    if together:
        parts = [replace(part, cards=parts[0].cards) for part in parts]
    lives = [draw(st.sampled_from((Life.MAIN, Life.SIDECAR, Life.INIT))) for _ in parts]
    containers = tuple(
        ContainerRequest(f"c{place}", part, life) for place, (part, life) in enumerate(zip(parts, lives, strict=True))
    )
    return Request("new", "foo/new", "gpushare", containers, together=together, constraints=draw(WISHES))


CLUSTERS = st.tuples(node_states("a"), node_states("b"), node_states("c"))


@given(CLUSTERS, requests())
def test_explain_agrees_with_the_search(states: Sequence[NodeState], asked: Request) -> None:
    told_now = told(states, asked)
    results = {name: group.reason for group in told_now.groups for name in group.nodes}
    for state in states:
        found = explain_node(state, asked)
        possible = arrange(state, asked) is not None
        assert fits(state, asked) is found.fits is possible
        assert results[state.cards.node] is found.reason
        for card in found.cards:
            alone = [obstacle(state, card.gpu, container.part, asked) is None for container in asked.containers]
            alike = can_promise(state.cards, asked) and fits_alone(state, card.gpu, asked)
            takes = alike if asked.together else any(alone)
            assert card.fits is takes


def fits_alone(state: NodeState, gpu: Gpu, asked: Request) -> bool:
    """All containers on this card and no other."""
    only = NodeState(replace(state.cards, gpus=(gpu,)), state.used)
    parts = tuple(replace(each, part=replace(each.part, cards=1)) for each in asked.containers)
    return arrange(only, replace(asked, containers=parts)) is not None


QUOTAS = st.sampled_from(
    (
        None,
        {"quota": {"T4": 1}},
        {"quota": {"A100": 1, "T4": 0}},
        {"quota": {"M": 1}},
        {"quota": {"T4": 2, "A100": 9}, "pool": ["a"]},
        {"memory": {"T4": "4Gi", "A100": "8Gi"}},
        {"memory": {"T4": "8Gi"}, "cores": {"T4": 200}},
        {"cores": {"M": 50, "A100": 100}, "pool": ["a", ""]},
    )
)


@given(CLUSTERS, requests(), QUOTAS)
def test_explain_gives_the_reasons_of_the_judgement(
    states: Sequence[NodeState], asked: Request, entry: Mapping[str, Any] | None
) -> None:
    fleet = Fleet()
    for state in states:
        fleet.put(state.cards, state.used)
    decision = quota(states, asked, entry) if entry else None
    judged = judge(fleet, asked, quota=decision)
    for state in states:
        assert judged.refusal(state.cards.node) is node_reason(state, asked, decision)
        placement = judged.placement(state.cards.node)
        for part in placement.slices() if placement and decision else ():
            assert decision is not None
            assert decision.refuses(state.cards, state.cards.by_uuid[part.uuid]) is None


@given(CLUSTERS, requests())
def test_every_change_that_is_named_helps_on_its_node(states: Sequence[NodeState], asked: Request) -> None:
    by_node = {state.cards.node: state for state in states}
    without_wishes = replace(asked, constraints=Constraints(models=asked.constraints.models))
    for relaxation in told(states, asked).relaxations:
        state = by_node[relaxation.node]
        assert not fits(state, asked)
        match relaxation.kind:
            case RelaxationKind.MODEL:
                assert fits(state, replace(asked, constraints=replace(asked.constraints, models=())))
            case RelaxationKind.CONSTRAINT:
                assert fits(state, without_wishes)
            case RelaxationKind.CARD:
                assert fits(state.opened(state.cards.by_uuid), asked)
            case RelaxationKind.CARDS:
                one_each = tuple(replace(each, part=replace(each.part, cards=1)) for each in asked.containers)
                assert fits(state, replace(asked, containers=one_each))
            case RelaxationKind.MEMORY | RelaxationKind.CORES:
                least = tuple(
                    replace(each, part=Part(each.part.cards, slots=each.part.slots)) for each in asked.containers
                )
                assert fits(state, replace(asked, containers=least)) or any(
                    each.part.slots for each in asked.containers
                )


@given(CLUSTERS, requests(), st.integers(1, 9))
def test_the_largest_memory_that_fits_is_named(states: Sequence[NodeState], asked: Request, amount: int) -> None:
    part = Part(memory=Memory(amount, Unit.NODE))
    asked = replace(asked, containers=(ContainerRequest("c0", part),))
    named = [each.amount for each in told(states, asked).relaxations if each.kind is RelaxationKind.MEMORY]

    def fitting(size: int) -> bool:
        smaller = replace(part, memory=Memory(size, Unit.NODE))
        return any(fits(state, replace(asked, containers=(ContainerRequest("c0", smaller),))) for state in states)

    largest = max((size for size in range(1, amount) if fitting(size)), default=None)
    assert named == ([] if fitting(amount) or largest is None else [largest])


def test_connected_cards_of_a_large_node_are_explained_as_they_are_judged() -> None:
    """A ring of 24 cards with gaps, too many sets to try: the longest stretch decides."""
    links = [{"links": (Link(make_gpu((place + 1) % 24, "n1").uuid, 150),)} for place in range(24)]
    state = node("n1", *links, used=[14 if place % 9 == 0 else 0 for place in range(24)])
    fleet = Fleet()
    fleet.put(state.cards, state.used)
    for cards, reason in ((8, None), (9, Reason.NO_TOPOLOGY)):
        asked = request(replace(gib(8), cards=cards), topology=Topology.NVLINK)
        assert node_reason(state, asked) is judge(fleet, asked).refusal("n1") is reason


def test_five_thousand_nodes_are_summed_up() -> None:
    states = [node(f"n{number:04}", *[{}] * 8, used=[number % 7 + 8] * 8) for number in range(4200)]
    states += [node(f"v{number:04}", *[{"model": "V100"}] * 8) for number in range(800)]
    told_now = told(states, request(gib(9), models=wish("T4")))
    assert [len(group.nodes) for group in told_now.groups] == [4200, 800]
    assert told_now.relaxations[0].amount == T4 - 8 * GIB

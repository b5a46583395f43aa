"""Reading pods and nodes in whatever dialect they speak: what a node serves, whose wish wins, what a pod holds."""

# ruff: noqa: ARG002 - a dialect is told more than each one needs

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from aliquot.dialects import Demand, Dialect, Dialects, Resource, cards_of, demand_of, holding_of, placement_of
from aliquot.dialects.aliquot import Aliquot
from aliquot.dialects.gpushare import ASSIGNED, IDX, GpuShare
from aliquot.dialects.keti import Keti
from aliquot.dialects.protocol import equal_cards
from aliquot.dialects.tencent import Tencent
from aliquot.errors import BadDemand, BadRecord, NotPlaced
from aliquot.model import (
    Charge,
    Constraints,
    ContainerRequest,
    Gpu,
    ModelConstraint,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Request,
    Slice,
    Topology,
    cut,
)
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import container_manifest, make_cards, make_gpu, make_node, make_pod

RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


class Plain(Dialect):
    """Whole cards that kubelet alone hands out, and a few wishes of its own."""

    name = "plain"
    standard_prefix = "plain.example"
    node_labels: ClassVar[Mapping[str, str]] = {"plain": "yes"}
    model_labels = ("plain.example/model",)
    pool_labels = ("plain.example/pool", "plain.example/old-pool")
    names_cards = False

    @property
    def resources(self) -> Sequence[Resource]:
        return (Resource(f"{self.prefix}/card", "a card"),)

    @property
    def placement_keys(self) -> Sequence[str]:
        return ()

    def demand(self, pod: Pod) -> Request:
        parts = [
            ContainerRequest(container.name, Part(int(container.limits[self.resource]), whole=True), life)
            for container, life in pod.containers()
            if self.resource in container.limits
        ]
        return Request(
            pod.metadata.uid, pod.key, self.name, tuple(parts), constraints=Constraints(node_policy="by-demand")
        )

    def constraints(self, pod: Pod) -> Constraints:
        said = pod.metadata.annotations.get("plain.example/policy")
        return (
            Constraints(models=(ModelConstraint(("T4",)),), gpu_policy=said, topology=Topology.NUMA)
            if said
            else Constraints()
        )

    def capacity(self, node: Node) -> NodeGpus | None:
        return equal_cards(node, 3, 1000) if "plain.example/card" in (node.status.capacity or {}) else None

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        return None

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        return {}

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        return [(gpu.uuid, gpu.uuid) for gpu in cards.gpus]

    def sample_pod(self) -> Mapping[str, Any]:
        return {}


DIALECTS = Dialects({"gpushare": GpuShare(), "plain": Plain(), "aliquot": Aliquot()})
BOTH = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2", "plain.example/card": "3"}


def labelled(labels: Mapping[str, str], **fields: Any) -> Node:
    return make_node("n1", metadata={"name": "n1", "labels": labels}, **fields)


# -- nodes

SERVED: list[Any] = [
    pytest.param({}, set(), id="no label: it does not say"),
    pytest.param({"dialect.aliquot.io/gpushare": "true"}, {"gpushare"}, id="our label"),
    pytest.param(
        {"dialect.aliquot.io/gpushare": "true", "dialect.aliquot.io/aliquot": "true"},
        {"gpushare", "aliquot"},
        id="two of them",
    ),
    pytest.param({"gpushare": "true"}, {"gpushare"}, id="the original's label"),
    pytest.param({"gpushare": "true", "plain": "yes"}, {"gpushare", "plain"}, id="the labels of two originals"),
    pytest.param({"gpushare": "false"}, set(), id="an original's label with another value"),
    pytest.param({"gpushare": "true", "dialect.aliquot.io/plain": "true"}, {"plain"}, id="ours decides alone"),
    pytest.param({"gpushare": "true", "dialect.aliquot.io/plain": "false"}, {"gpushare"}, id="ours is no no"),
    pytest.param({"dialect.aliquot.io/theirs": "true"}, {"theirs"}, id="one that this process does not speak"),
]


@pytest.mark.parametrize("inventory", [True, False], ids=["with an inventory", "without"])
@pytest.mark.parametrize(("labels", "served"), SERVED)
def test_labels_say_which_dialects_a_node_serves(labels: dict[str, str], served: set[str], inventory: bool) -> None:
    node = make_node("n1", make_cards() if inventory else None)
    metadata = {"name": "n1", "labels": labels, "annotations": node.metadata.annotations}
    assert cards_of(make_node("n1", metadata=metadata), DIALECTS).dialects == served


QUOTA_LABELS: list[Any] = [
    pytest.param({}, ("", ""), id="none"),
    pytest.param({"gaia.tencent.com/gpu-model": "A100", "gaia.tencent.com/gpu-pool": "p"}, ("A100", "p"), id="gaia"),
    pytest.param({"tkestack.io/gpu-model": "T4", "tkestack.io/gpu-pool": "q"}, ("T4", "q"), id="tkestack"),
    pytest.param({"tkestack.io/gpu-pool": "q", "gaia.tencent.com/gpu-model": "A100"}, ("A100", "q"), id="one of each"),
    pytest.param({"tkestack.io/gpu-model": "T4", "gaia.tencent.com/gpu-model": "A100"}, ("A100", ""), id="both: gaia"),
    pytest.param({"tkestack.io/gpu-model": "T4", "gaia.tencent.com/gpu-model": ""}, ("T4", ""), id="an empty one"),
    pytest.param({"plain.example/old-pool": "o", "tkestack.io/gpu-model": "T4"}, ("T4", "o"), id="of two dialects"),
]


@pytest.mark.parametrize(("labels", "expected"), QUOTA_LABELS)
def test_labels_that_dialects_declare_name_model_and_pool(labels: dict[str, str], expected: tuple[str, str]) -> None:
    cards = cards_of(labelled(labels), Dialects({"plain": Plain(), "tencent": Tencent()}))
    assert (cards.model, cards.pool) == expected


def test_where_two_dialects_name_the_model_the_first_of_the_table_counts() -> None:
    node = labelled({"plain.example/model": "T4", "tkestack.io/gpu-model": "A100"})
    table: dict[str, Dialect] = {"tencent": Tencent(), "plain": Plain()}
    assert cards_of(node, Dialects(table)).model == "A100"
    assert cards_of(node, Dialects(dict(reversed(table.items())))).model == "T4"


def test_labels_of_a_dialect_that_is_not_spoken_name_nothing() -> None:
    assert cards_of(labelled({"tkestack.io/gpu-model": "A100"}), Dialects({"plain": Plain()})).model == ""


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        pytest.param({}, 2, id="nobody is named: the first of the table"),
        pytest.param({"plain": "yes"}, 3, id="the one that the node's labels name comes first"),
        pytest.param({"dialect.aliquot.io/plain": "true", "gpushare": "true"}, 3, id="ours before the original's"),
        pytest.param({"dialect.aliquot.io/aliquot": "true"}, 2, id="one that knows no capacity"),
    ],
)
def test_a_node_s_own_dialect_tells_its_capacity(labels: dict[str, str], count: int) -> None:
    assert len(cards_of(labelled(labels, capacity=BOTH), DIALECTS).gpus) == count


# -- wishes


def constraints(annotations: Mapping[str, str], resource: str) -> Constraints:
    containers = [container_manifest(gpu_mem=None, resources={"limits": {resource: "1"}})]
    demand = demand_of(make_pod(containers=containers, metadata={"annotations": annotations}), DIALECTS)
    assert demand is not None
    return demand.request.constraints


OURS = {"aliquot.io/gpu-policy": "spread", "aliquot.io/model": "A100"}
THEIRS = {"plain.example/policy": "packed"}


@pytest.mark.parametrize("resource", ["aliyun.com/gpu-mem", "plain.example/card", "aliquot.io/gpu"])
def test_where_one_wish_alone_can_hold_ours_wins_and_the_rest_add_up(resource: str) -> None:
    merged = constraints(OURS | THEIRS, resource)
    assert (merged.gpu_policy, merged.topology) == ("spread", Topology.NUMA)
    assert merged.models == (ModelConstraint(("A100",)), ModelConstraint(("T4",)))


def test_what_a_demand_itself_wishes_comes_before_other_dialects() -> None:
    assert constraints(THEIRS, "plain.example/card").node_policy == "by-demand"
    assert constraints({"aliquot.io/node-policy": "spread"}, "plain.example/card").node_policy == "spread"
    assert constraints(THEIRS, "aliyun.com/gpu-mem") == Constraints(
        models=(ModelConstraint(("T4",)),), gpu_policy="packed", topology=Topology.NUMA
    )


def test_the_pod_s_own_dialect_comes_before_those_that_stand_before_it_in_the_table() -> None:
    class Eager(Plain):
        name = "eager"
        standard_prefix = "eager.example"

        def constraints(self, pod: Pod) -> Constraints:
            return Constraints(gpu_policy="eager")

    dialects = Dialects({"eager": Eager(), **DIALECTS})
    containers = [container_manifest(gpu_mem=None, resources={"limits": {"plain.example/card": "1"}})]
    demand = demand_of(make_pod(containers=containers, metadata={"annotations": THEIRS}), dialects)
    assert demand is not None
    assert demand.request.constraints.gpu_policy == "packed"


# -- what a bound pod holds


def record(cards: NodeGpus, *indexes: int, **fields: Any) -> dict[str, str]:
    part = Part(cores=10)
    slices = tuple(cut(part, cards.by_index[index], cards.unit_mib) for index in indexes)
    defaults: dict[str, Any] = {"node": cards.node, "dialect": "aliquot", "containers": {"main": slices}}
    return {PLACEMENT: write_placement(Placement(**defaults | fields))}


def aliquot_pod(annotations: Mapping[str, str], cards: int = 1, **fields: Any) -> Pod:
    containers = [container_manifest(gpu_mem=None, resources={"limits": {"aliquot.io/gpu": str(cards)}})]
    said = {"aliquot.io/cores": "10", **annotations}
    return make_pod(containers=containers, metadata={"annotations": said}, node="n1", **fields)


def shared(*indexes: int, **forged: Any) -> dict[str, str]:
    """Our record on a gpushare pod."""
    slices = tuple(replace(cut(Part(), make_gpu(index), 1024), **forged) for index in indexes)
    return {PLACEMENT: write_placement(Placement("n1", "gpushare", {"main": slices}))}


THREE = Charge(0, 3072, shares=1)
TWO_RECORDS: list[Any] = [
    pytest.param(shared(0) | {IDX: "0"}, ["GPU-n1-0"], "", id="they agree, as we write them"),
    pytest.param(shared(0) | {IDX: "1"}, ["GPU-n1-0", "GPU-n1-1"], "name different cards", id="they do not"),
    pytest.param(shared(0, uuid="n1/0") | {IDX: "0"}, ["GPU-n1-0"], "", id="the name from before the inventory"),
    pytest.param(shared(0, minor=9, index=1) | {IDX: "0"}, ["GPU-n1-0"], "", id="wrong numbers beside the uuid"),
    pytest.param(shared(0, index=1) | {IDX: "1"}, ["GPU-n1-0"], "", id="they agreed before cards were renumbered"),
    pytest.param(shared(0) | {IDX: "9"}, ["GPU-n1-0"], "", id="the original's cannot be read"),
    pytest.param(shared(0), ["GPU-n1-0"], "", id="ours alone"),
]


@pytest.mark.parametrize(("annotations", "held_on", "doubt"), TWO_RECORDS)
def test_of_two_records_that_name_different_cards_both_are_charged(
    annotations: dict[str, str], held_on: list[str], doubt: str
) -> None:
    held = holding_of(make_pod(metadata={"annotations": annotations}, node="n1"), make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == dict.fromkeys(held_on, THREE)
    assert doubt in held.doubt
    assert bool(doubt) is bool(held.doubt)
    assert [part.uuid for part in held.placement.slices()] == ["GPU-n1-0"], "our record says where the pod is shown"


def test_what_an_original_put_on_one_card_is_not_made_less_by_a_label_and_a_record_of_ours() -> None:
    metadata = {"annotations": shared(0, 1) | {IDX: "0"}, "labels": {"aliyun.com/gpu-count": "2"}}
    held = holding_of(make_pod(gpu_mem=8, metadata=metadata, node="n1"), make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == {"GPU-n1-0": Charge(0, 8192, shares=1), "GPU-n1-1": Charge(0, 4096, shares=1)}


def test_a_card_of_both_records_is_charged_with_the_larger_part_of_each_measure() -> None:
    """gpu-manager has corrected where two whole cards are: one of the two is another one."""
    cards = make_cards(mib=(15360,) * 3)
    slices = tuple(cut(Part(whole=True), gpu, 1024) for gpu in cards.gpus[:2])
    written = {PLACEMENT: write_placement(Placement("n1", "tencent", {"main": slices}))}
    corrected = written | {"tencent.com/predicate-gpu-idx-0": "4,5", "tencent.com/gpu-assigned": "true"}
    containers = [container_manifest(gpu_mem=None, resources={"limits": {"tencent.com/vcuda-core": "200"}})]
    pod = make_pod(containers=containers, metadata={"annotations": corrected}, node="n1")
    held = holding_of(pod, cards, Dialects({"tencent": Tencent()}))
    assert held is not None
    assert held.charges == dict.fromkeys(cards.by_uuid, Charge(100, 15360, shares=1))


def test_minors_from_before_the_inventory_are_those_of_our_record() -> None:
    """Without an inventory, minors are taken for indexes."""
    cards = make_cards(mib=(15360,) * 4)
    made_up = replace(cut(Part(whole=True), cards.by_index[3], 1024), uuid="n1/3", minor=3)
    written = {PLACEMENT: write_placement(Placement("n1", "tencent", {"main": (made_up,)}))}
    annotations = written | {"tencent.com/predicate-gpu-idx-0": "3"}
    containers = [container_manifest(gpu_mem=None, resources={"limits": {"tencent.com/vcuda-core": "100"}})]
    pod = make_pod(containers=containers, metadata={"annotations": annotations}, node="n1")
    held = holding_of(pod, cards, Dialects({"tencent": Tencent()}))
    assert held is not None
    assert (list(held.charges), held.doubt) == (["GPU-n1-3"], "")


def test_without_our_record_the_dialect_s_own_is_read() -> None:
    held = holding_of(make_pod(metadata={"annotations": {IDX: "1"}}, node="n1"), make_cards(), DIALECTS)
    assert held is not None
    assert (held.charges, held.doubt, held.unnamed) == ({"GPU-n1-1": Charge(0, 3072, shares=1)}, "", 0)


def test_a_pod_without_gpu_holds_nothing() -> None:
    assert holding_of(make_pod(gpu_mem=None, node="n1"), make_cards(), DIALECTS) is None


GPU_0 = Slice("GPU-n1-0", 0, 3, 10, 0)
BAD_RECORDS: list[Any] = [
    pytest.param({"node": "n9"}, f"{PLACEMENT} names node n9, but the pod is bound to n1", id="another node"),
    pytest.param(
        {"dialect": "x"}, f"{PLACEMENT} is of dialect x, but the pod uses dialect aliquot", id="another dialect"
    ),
    pytest.param(
        {"containers": {"main": (Slice("GPU-gone", 0, 0, 10, 0),)}},
        f"{PLACEMENT} names card GPU-gone, which node n1 does not have",
        id="a card that has vanished",
    ),
    pytest.param(
        {"containers": {"main": (Slice("n2/0", 0, 0, 10, 0),)}}, f"{PLACEMENT} names card n2/0", id="another's card"
    ),
    pytest.param(
        {"containers": {"main": (GPU_0, GPU_0)}}, f"{PLACEMENT} names a card twice for container main", id="twice"
    ),
    pytest.param(
        {"containers": {"main": (GPU_0, Slice("n1/0", 0, 0, 10, 0))}},
        f"{PLACEMENT} names a card twice for container main",
        id="twice, by two names",
    ),
    pytest.param({"containers": {"main": ()}}, f"{PLACEMENT} names 0 cards for container main", id="no card"),
    pytest.param({"containers": {"other": (GPU_0,)}}, f"{PLACEMENT} names 0 cards for container main", id="no part"),
]


@pytest.mark.parametrize(("fields", "text"), BAD_RECORDS)
def test_a_record_that_cannot_be_is_refused_by_its_key(fields: dict[str, Any], text: str) -> None:
    cards = make_cards()
    with pytest.raises(BadRecord, match=text):
        holding_of(aliquot_pod(record(cards, 0, **fields)), cards, DIALECTS)


@pytest.mark.parametrize(("fields", "text"), BAD_RECORDS)
def test_a_pod_that_runs_with_such_a_record_is_charged_on_every_card(fields: dict[str, Any], text: str) -> None:
    cards = make_cards()
    held = holding_of(aliquot_pod(record(cards, 0, **fields), status=RUNNING), cards, DIALECTS)
    assert held is not None
    whole = Charge(100, 15360, shares=1)
    assert held.charges == dict.fromkeys(cards.by_uuid, whole), (
        "what its annotations ask for now, it may have rewritten"
    )
    assert text.removeprefix(f"{PLACEMENT} ") in held.doubt
    assert (held.placement.containers, held.unnamed) == ({}, 0)


@pytest.mark.parametrize("count", [1, 3])
def test_a_record_of_ours_names_as_many_cards_as_the_spec_asks_for(count: int) -> None:
    """The memory of a gpushare pod without a label is in its spec, which nobody can change."""
    cards = make_cards(mib=(15360,) * 4)
    slices = {"main": tuple(cut(Part(), gpu, 1024) for gpu in cards.gpus[:count])}
    ours = {PLACEMENT: write_placement(Placement("n1", "gpushare", slices))}
    bound = make_pod(
        containers=[container_manifest(gpu_mem=None, resources={"limits": {"aliyun.com/gpu-count": "2"}})],
        metadata={"annotations": ours},
        node="n1",
    )
    with pytest.raises(BadRecord, match=f"names {count} cards for container main, which asks for 2"):
        holding_of(bound, cards, DIALECTS)


def test_ids_from_before_the_inventory_become_the_real_ones() -> None:
    bound = aliquot_pod(record(make_cards(), 0, containers={"main": (Slice("n1/1", 1, 1, 10, 0),)}))
    held = holding_of(bound, make_cards(), DIALECTS)
    assert held is not None
    assert held.placement.containers["main"] == (Slice("GPU-n1-1", 1, 4, 10, 0),)


def test_a_pod_that_has_got_nothing_yet_holds_nothing() -> None:
    with pytest.raises(NotPlaced, match="pod default/p is on node n1 without a placement"):
        holding_of(aliquot_pod({}), make_cards(), DIALECTS)


def test_a_pod_that_runs_without_a_record_is_charged_on_every_card() -> None:
    held = holding_of(aliquot_pod({}, status=RUNNING), make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == dict.fromkeys(make_cards().by_uuid, Charge(100, 15360, shares=1))
    assert "without a placement" in held.doubt


# -- pods whose cards kubelet alone knows


def plain_pod(*counts: int, annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    containers = [
        container_manifest(f"c{place}", None, resources={"limits": {"plain.example/card": str(count)}})
        for place, count in enumerate(counts)
    ]
    return make_pod(containers=containers, metadata={"annotations": annotations or {}}, node="n1", **fields)


HAS_RUN = {"phase": "Running", "containerStatuses": [{"name": "c0", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("annotations", "status"),
    [
        pytest.param({}, {"phase": "Pending"}, id="no record, pending"),
        pytest.param({}, HAS_RUN, id="no record, running"),
        pytest.param({PLACEMENT: "{"}, {"phase": "Pending"}, id="a bad record, pending"),
    ],
)
def test_cards_that_nobody_names_are_counted_not_charged(annotations: dict[str, str], status: dict[str, Any]) -> None:
    held = holding_of(plain_pod(2, 1, annotations=annotations, status=status), make_cards(), DIALECTS)
    assert held is not None
    assert (held.unnamed, held.charges, held.placement.containers) == (3, {}, {})


def test_a_record_that_was_broken_does_not_make_the_cards_others() -> None:
    held = holding_of(plain_pod(1, annotations={PLACEMENT: "junk"}, status=HAS_RUN), make_cards(), DIALECTS)
    assert held is not None
    assert (held.unnamed, held.charges) == (0, dict.fromkeys(make_cards().by_uuid, Charge(100, 15360, shares=1)))
    assert "cannot be read" in held.doubt


def test_an_init_container_gives_its_unnamed_cards_back() -> None:
    init = [container_manifest("i", None, resources={"limits": {"plain.example/card": "4"}})]
    held = holding_of(plain_pod(2, 1, initContainers=init), make_cards(), DIALECTS)
    assert held is not None
    assert held.unnamed == 4


def test_once_they_are_named_they_are_charged() -> None:
    cards = make_cards()
    slices = {"c0": tuple(cut(Part(whole=True), gpu, 1024) for gpu in cards.gpus)}
    ours = {PLACEMENT: write_placement(Placement("n1", "plain", slices))}
    held = holding_of(plain_pod(2, annotations=ours), cards, DIALECTS)
    assert held is not None
    assert (held.unnamed, held.charges) == (0, dict.fromkeys(cards.by_uuid, Charge(100, 15360, shares=1)))


# -- odds and ends


def test_a_placement_of_the_original_may_name_more_cards_than_it_should() -> None:
    bound = make_pod(metadata={"annotations": {IDX: "0,1", ASSIGNED: "true"}}, node="n1")
    held = holding_of(bound, make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == {"GPU-n1-0": Charge(0, 3072, shares=1), "GPU-n1-1": Charge(0, 3072, shares=1)}


def test_no_forged_size_is_larger_than_the_card() -> None:
    cards = NodeGpus("n1", (Gpu("GPU-1", 0, 0, "T4", 15360),), 1024)
    forged = {PLACEMENT: write_placement(Placement("n1", "aliquot", {"main": (Slice("GPU-1", 0, 0, 9999, 2**24, 9),)}))}
    bound = aliquot_pod(forged)
    demand = demand_of(bound, DIALECTS)
    assert demand is not None
    (part,) = placement_of(bound, Demand(demand.dialect, demand.request), cards).slices()
    assert part.charge == Charge(100, 15360, shares=1)


@pytest.mark.parametrize(
    ("recorded", "asked", "counts"),
    [
        pytest.param(5, 2, 5, id="the record's"),
        pytest.param(2, 5, 5, id="the demand's"),
        pytest.param(99, 2, 10, id="no more than the card has"),
    ],
)
def test_the_larger_number_of_slots_counts(recorded: int, asked: int, counts: int) -> None:
    cards = NodeGpus("n1", (Gpu("GPU-1", 0, 0, "T4", 15360, slots=10),), 1024)
    written = write_placement(Placement("n1", "aliquot", {"main": (Slice("GPU-1", 0, 0, 0, 0, recorded),)}))
    bound = aliquot_pod({PLACEMENT: written, "aliquot.io/slots": str(asked)})
    held = holding_of(bound, cards, DIALECTS)
    assert held is not None
    assert held.charges["GPU-1"].slots == counts


def test_a_container_that_can_have_no_card_says_nothing_of_a_hand_over() -> None:
    """An init container without GPU runs while the others still wait for their placement."""
    status = {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]}
    waiting = make_pod(initContainers=[container_manifest("fetch", None)], node="n1", status=status)
    with pytest.raises(NotPlaced):
        holding_of(waiting, make_cards(), DIALECTS)


TWO_DIALECTS = {"aliyun.com/gpu-mem": "3", "aliquot.io/gpu": "1"}
BOTH_DIALECTS = {"resources": {"limits": TWO_DIALECTS}}


def test_a_pod_that_runs_with_two_dialects_is_charged_for_both_on_every_card() -> None:
    """Whoever let it in: it has what it asks for, and nobody can say where."""
    containers = [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "3", "keti.com/mpsgpu": "1"}}}]
    metadata = {"annotations": {IDX: "0", "UUID": "GPU-n1-1"}}
    dialects = Dialects({"gpushare": GpuShare(), "tencent": Tencent(), "keti": Keti()})
    pod = make_pod(containers=containers, metadata=metadata, node="n1", status=RUNNING)
    held = holding_of(pod, make_cards(), dialects)
    assert held is not None
    assert held.charges == dict.fromkeys(make_cards().by_uuid, Charge(100, 15360, shares=2))
    assert "several dialects (gpushare, keti)" in held.doubt


def states(**running: bool) -> dict[str, Any]:
    shown = {True: {"running": {}}, False: {"waiting": {"reason": "ContainerCreating"}}}
    statuses = [{"name": name, "state": shown[is_on]} for name, is_on in running.items()]
    return {"phase": "Pending", "containerStatuses": statuses}


SMALL_BUT_RUNNING: list[Any] = [
    pytest.param({"aliquot.io/gpu": "0"}, id="none of a dialect"),
    pytest.param({"example.com/nic": "1"}, id="another device"),
    pytest.param({"cpu": "1"}, id="no device at all"),
]


@pytest.mark.parametrize("limits", SMALL_BUT_RUNNING)
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(TWO_DIALECTS, id="in two dialects"),
        pytest.param({"aliquot.io/gpu": "1"}, id="in one"),
    ],
)
def test_a_container_that_runs_does_not_speak_for_one_that_was_refused(
    limits: dict[str, str], asked: dict[str, str]
) -> None:
    containers = [
        {"name": "small", "resources": {"limits": limits}},
        {"name": "refused", "resources": {"limits": asked}},
    ]
    pod = make_pod(containers=containers, node="n1", status=states(small=True, refused=False))
    with pytest.raises((BadDemand, NotPlaced)):
        holding_of(pod, make_cards(), DIALECTS)


def test_of_several_dialects_those_count_whose_containers_run() -> None:
    containers = [
        {"name": "shares", "resources": {"limits": {"aliyun.com/gpu-mem": "3"}}},
        {"name": "refused", "resources": {"limits": {"aliquot.io/gpu": "1"}}},
    ]
    pod = make_pod(containers=containers, node="n1", status=states(shares=True, refused=False))
    held = holding_of(pod, make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == dict.fromkeys(make_cards().by_uuid, THREE)


UNREGISTERED: list[Any] = [
    pytest.param({"tencent.com/vcuda-core": "100"}, id="one dialect"),
    pytest.param({"tencent.com/vcuda-core": "100", "keti.com/mpsgpu": "1"}, id="two"),
]


@pytest.mark.parametrize("limits", UNREGISTERED)
def test_where_kubelet_knows_none_of_its_resources_a_pod_runs_without_a_card(limits: dict[str, str]) -> None:
    dialects = Dialects({"tencent": Tencent(), "keti": Keti(), **DIALECTS})
    cards = cards_of(make_node("n1", make_cards()), dialects)
    pod = make_pod(containers=[{"name": "main", "resources": {"limits": limits}}], node="n1", status=RUNNING)
    with pytest.raises((BadDemand, NotPlaced)):
        holding_of(pod, cards, dialects)


@pytest.mark.parametrize("amount", ["1", "0"], ids=["registered", "its plugin is gone"])
def test_where_kubelet_knows_them_it_has_one(amount: str) -> None:
    cards = cards_of(make_node("n1", make_cards(), capacity={"aliquot.io/gpu": amount}), DIALECTS)
    held = holding_of(aliquot_pod({}, status=RUNNING), cards, DIALECTS)
    assert held is not None
    assert held.charges.keys() == cards.by_uuid.keys()


def test_one_that_has_got_nothing_is_charged_nothing() -> None:
    pod = make_pod(containers=[{"name": "main", **BOTH_DIALECTS}], node="n1")
    with pytest.raises(BadDemand, match="several dialects"):
        holding_of(pod, make_cards(), DIALECTS)


def test_a_dialect_in_which_it_gets_no_card_adds_nothing() -> None:
    limits = {"aliyun.com/gpu-mem": "3", "tencent.com/vcuda-memory": "8"}
    pod = make_pod(containers=[{"name": "main", "resources": {"limits": limits}}], node="n1", status=RUNNING)
    held = holding_of(pod, make_cards(), Dialects({"gpushare": GpuShare(), "tencent": Tencent()}))
    assert held is not None
    assert held.charges == dict.fromkeys(make_cards().by_uuid, THREE)


def test_none_of_a_dialect_is_not_a_second_one() -> None:
    limits = {"resources": {"limits": {"aliyun.com/gpu-mem": "3", "plain.example/card": "0"}}}
    demand = demand_of(make_pod(containers=[{"name": "main", **limits}]), DIALECTS)
    assert demand is not None
    assert demand.dialect.name == "gpushare"


def test_two_dialects_in_one_pod_are_refused() -> None:
    both = {"resources": {"limits": {"aliyun.com/gpu-mem": "1", "plain.example/card": "1"}}}
    with pytest.raises(BadDemand, match=r"several dialects \(gpushare, plain\)"):
        demand_of(make_pod(containers=[container_manifest(gpu_mem=None) | both]), DIALECTS)

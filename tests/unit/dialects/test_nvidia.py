"""nvidia's words: whole cards, MIG instances, and models under forgiving names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import cards_of, demand_of, holding_of, placement_of, standard_dialects
from aliquot.dialects.hami import Hami
from aliquot.dialects.holding import Demand
from aliquot.dialects.nvidia import Nvidia
from aliquot.errors import BadDemand, BadRecord, NotPlaced
from aliquot.model import (
    Constraints,
    ContainerRequest,
    Gpu,
    Life,
    ModelConstraint,
    NodeGpus,
    Part,
    Placement,
    Pod,
    cut,
    is_model,
)
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import container_manifest, make_cards, make_gpu, make_node, make_pod

DIALECTS = standard_dialects()
NVIDIA, HAMI = Nvidia(), Hami()
GPU = "nvidia.com/gpu"
MODEL = "nvidia.com/gpu.model"
MIG = "nvidia.com/mig-1g.5gb"


def asking(limits: Mapping[str, Any], name: str = "main", **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": dict(limits)}, **fields)


def pod_of(limits: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    return make_pod(containers=[asking(limits)], metadata={"annotations": dict(annotations or {})}, **fields)


# -- demand


def test_every_container_gets_its_own_whole_cards() -> None:
    pod = make_pod(
        containers=[asking({GPU: 2}, "a"), asking({}, "plain"), asking({GPU: "0"}, "zero"), asking({GPU: "3"}, "b")],
        initContainers=[asking({GPU: 1}, "i"), asking({GPU: 1}, "s", restartPolicy="Always")],
    )
    assert NVIDIA.demand(pod).containers == (
        ContainerRequest("i", Part(1, whole=True), Life.INIT),
        ContainerRequest("s", Part(1, whole=True), Life.SIDECAR),
        ContainerRequest("a", Part(2, whole=True)),
        ContainerRequest("b", Part(3, whole=True)),
    )


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        pytest.param("mig-1g.5gb", "1g.5gb", id="a profile"),
        pytest.param("mig-1g.10gb.me", "1g.10gb+me", id="with media engines"),
        pytest.param("mig-2c.3g.20gb", "2c.3g.20gb", id="a compute instance"),
        pytest.param("mig-9g.999gb", "9g.999gb", id="one of a card to come"),
    ],
)
def test_mig_instances_are_asked_for_by_profile(resource: str, profile: str) -> None:
    demand = demand_of(pod_of({f"nvidia.com/{resource}": 2}), DIALECTS)
    assert demand is not None
    assert demand.dialect.name == "nvidia"
    assert demand.request.constraints.mig == profile
    assert demand.request.containers == (ContainerRequest("main", Part(2, whole=True)),)


BAD: list[Any] = [
    pytest.param({GPU: "x"}, {}, f"container main, limits, {GPU}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param({GPU: 1, "nvidia.com/priority": 5}, {}, "priority: write 0 for high or 1 for low", id="a priority"),
    pytest.param({GPU: "-1"}, {}, f"container main, limits, {GPU}: '-1' is negative", id="less than nothing"),
    pytest.param(
        {GPU: "1Gi"},
        {},
        f"{GPU}: 1073741824 is more than any node has; it counts cards: write 1",
        id="more than any node",
    ),
    pytest.param({GPU: 1, MIG: 1}, {}, f"{GPU}: the pod also asks for {MIG}", id="cards and instances"),
    pytest.param({MIG: 1, "nvidia.com/mig-7g.40gb": 1}, {}, "instances of one profile only", id="two profiles"),
    pytest.param(
        {"nvidia.com/mig-small": 1}, {}, f"nvidia.com/mig-small: this is not a MIG profile; .* {MIG}", id="no profile"
    ),
    pytest.param({GPU: 1}, {MODEL: ""}, f"annotation {MODEL}: '' names no model; write one, such as A100", id="empty"),
    pytest.param({GPU: 1}, {MODEL: " , "}, f"annotation {MODEL}: ' , ' names no model", id="only commas"),
]


@pytest.mark.parametrize(("limits", "annotations", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(
    limits: dict[str, Any], annotations: dict[str, str], text: str
) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod_of(limits, annotations), DIALECTS)


@pytest.mark.parametrize("none", ["0", "0.0", "0k", 0])
def test_none_of_it_is_no_demand_for_a_gpu(none: Any) -> None:
    """As charts write it, and as the original takes it."""
    pod = pod_of({GPU: none})
    assert demand_of(pod, DIALECTS) is None
    with pytest.raises(BadDemand, match=f"more than 0 of {GPU}"):
        NVIDIA.demand(pod)


PARTS = ("gpumem", "gpumem-percentage", "gpucores")
AMOUNTS = st.one_of(st.none(), st.sampled_from(["0", "1", "30", "x"]))


@given(st.fixed_dictionaries(dict.fromkeys(("gpu", "mig-1g.5gb", "priority", *PARTS), AMOUNTS)))
def test_nvidia_and_hami_share_a_prefix_and_never_a_pod(asked: dict[str, str | None]) -> None:
    limits = {f"nvidia.com/{name}": amount for name, amount in asked.items() if amount is not None}
    pod = pod_of(limits)
    counted = {name for name, amount in asked.items() if amount not in (None, "0")} - {"priority"}
    names_parts = any(asked[name] is not None for name in PARTS)
    assert NVIDIA.speaks(pod) is (bool(counted) and not names_parts)
    assert HAMI.speaks(pod) is (bool(counted) and names_parts)


def test_the_prefix_can_be_another() -> None:
    own = Nvidia("gpu.example")
    pod = pod_of({"gpu.example/gpu": 2}, {"gpu.example/gpu.model": "T4", MODEL: ""})
    assert own.speaks(pod)
    assert not NVIDIA.speaks(pod)
    assert own.demand(pod).containers[0].part.cards == 2
    assert own.constraints(pod).models == (ModelConstraint(("T4",)),)
    assert own.resource == "gpu.example/gpu"


# -- models

NAMES: list[Any] = [
    ("T4", "Tesla T4", True),
    ("tesla t4", "Tesla T4", True),
    ("Tesla-T4", "Tesla T4", True),
    ("T4", "NVIDIA T400 4GB", False),
    ("a100", "NVIDIA A100-SXM4-40GB", True),
    ("a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", True),
    ("a100-sxm4-40gb", "NVIDIA A100-SXM4-80GB", False),
    ("A100 40GB", "NVIDIA A100-SXM4-40GB", True),
    ("A100-40G", "NVIDIA A100-PCIE-40GB", True),
    ("A100 80 GB", "NVIDIA A100 80GB PCIe", True),
    ("A100 SXM", "NVIDIA A100-PCIE-40GB", False),
    ("A10", "NVIDIA A100-SXM4-40GB", False),
    ("A10", "NVIDIA A10G", False),
    ("A10G", "NVIDIA A10G", True),
    ("L4", "NVIDIA L40", False),
    ("L40", "NVIDIA L40S", False),
    ("V100", "Tesla V100-SXM2-16GB", True),
    ("V100", "Tesla V100S-PCIE-32GB", False),
    ("H100", "NVIDIA H100 80GB HBM3", True),
    ("RTX 3090", "NVIDIA GeForce RTX 3090", True),
    ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090", True),
    ("rtx3090", "NVIDIA GeForce RTX 3090", True),
    ("3090", "NVIDIA GeForce RTX 3090", True),
    ("RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
    ("3090ti", "NVIDIA GeForce RTX 3090 Ti", True),
    ("RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
    ("RTX A6000", "NVIDIA RTX A6000", True),
    ("Quadro RTX 6000", "Quadro RTX 6000", True),
    ("Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation", False),
    ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", True),
    ("A100", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", False),
    ("Tesla", "Tesla T4", False),
    ("", "Tesla T4", False),
    ("", "", False),
]


@pytest.mark.parametrize(("name", "model", "same"), NAMES, ids=[f"{name} / {model}" for name, model, _ in NAMES])
def test_a_name_is_forgiving_but_never_another_model(name: str, model: str, same: bool) -> None:
    assert is_model(name, model) is same


@given(st.text(max_size=30).filter(str.strip), st.sampled_from(["", " ", "\t"]))
def test_a_model_s_own_name_always_means_it(name: str, space: str) -> None:
    """So that what the original took, exactly but for case and outer space, is taken."""
    assert is_model(space + name.swapcase().casefold() + space, name.casefold())


@pytest.mark.parametrize(
    ("text", "model", "allowed"),
    [
        pytest.param("A100,V100", "Tesla V100-SXM2-16GB", True, id="one of a list"),
        pytest.param(" a100 , v100 ", "NVIDIA A100-SXM4-40GB", True, id="spaces"),
        pytest.param("A100,V100", "Tesla T4", False, id="none of a list"),
        pytest.param("A100,", "Tesla T4", False, id="a comma at the end allows nothing more"),
    ],
)
def test_a_list_of_models_means_any_of_them(text: str, model: str, allowed: bool) -> None:
    assert NVIDIA.constraints(pod_of({}, {MODEL: text})).allows_model(model) is allowed


def test_the_model_is_wished_on_pods_of_other_dialects_too() -> None:
    demand = demand_of(make_pod(metadata={"annotations": {MODEL: "T4"}}), DIALECTS)
    assert demand is not None
    assert demand.dialect.name == "gpushare"
    assert demand.request.constraints.models == (ModelConstraint(("T4",)),)


# -- nodes without our agent

CAPACITY: list[Any] = [
    pytest.param({GPU: "8"}, {}, [("unknown", 1)] * 8, id="a count alone: whole cards of a size nobody knows"),
    pytest.param(
        {GPU: 2},
        {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"},
        [("Tesla-T4", 15360)] * 2,
        id="with the feature discovery's labels",
    ),
    pytest.param(
        {GPU: "8"},
        {
            "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
            "nvidia.com/gpu.memory": "23028",
            "nvidia.com/gpu.replicas": "4",
        },
        [("NVIDIA-A10", 23028)] * 2,
        id="time-sliced: what is offered are shares",
    ),
    pytest.param({GPU: "2"}, {"nvidia.com/gpu.memory": "much"}, [("unknown", 1)] * 2, id="a label that is no number"),
    pytest.param({GPU: "0"}, {}, [], id="the plugin is gone"),
    pytest.param({GPU: "many"}, {}, [], id="nonsense"),
    pytest.param({}, {}, [], id="a node without GPUs"),
]


@pytest.mark.parametrize(("capacity", "labels", "cards"), CAPACITY)
def test_a_node_of_nvidia_s_plug_in_has_whole_cards(
    capacity: dict[str, Any], labels: dict[str, str], cards: list[tuple[str, int]]
) -> None:
    node = make_node("old", capacity=capacity)
    node = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))
    found = cards_of(node, DIALECTS)
    assert [(gpu.model, gpu.mib) for gpu in found.gpus] == cards
    assert found.dialects == ({"nvidia"} if cards else frozenset())


def test_hami_s_shares_are_not_taken_for_cards() -> None:
    node = make_node("old", capacity={GPU: "20"}, annotations={"hami.io/node-nvidia-register": "[]"})
    assert cards_of(node, DIALECTS).gpus == ()


# -- the node


def mig_cards() -> NodeGpus:
    whole = make_gpu(0)
    cut_up = make_gpu(1, model="NVIDIA A100-SXM4-40GB", mib=40960)
    instances = (
        replace(cut_up, uuid=f"MIG-{place}", index=2 + place, mib=4864, parent=cut_up.uuid, profile=profile)
        for place, profile in enumerate(["1g.5gb", "1g.5gb", "1g.5gb+me"])
    )
    return NodeGpus("n1", (whole, cut_up, *instances), 1)


@pytest.mark.parametrize(
    ("resource", "ids"),
    [
        pytest.param(GPU, ["GPU-n1-0"], id="cards, without those that are cut into instances"),
        pytest.param(MIG, ["MIG-0", "MIG-1"], id="instances of a profile"),
        pytest.param("nvidia.com/mig-1g.5gb.me", ["MIG-2"], id="with media engines"),
        pytest.param("nvidia.com/mig-7g.40gb", [], id="instances that the node does not have"),
    ],
)
def test_ids_are_uuids(resource: str, ids: list[str]) -> None:
    assert NVIDIA.device_ids(resource, mig_cards()) == [(uuid, uuid) for uuid in ids]


def test_every_resource_has_the_plug_in_s_socket() -> None:
    assert NVIDIA.resources[0].socket == "nvidia-gpu.sock"
    assert [r.socket for r in NVIDIA.resources if r.name == MIG] == ["nvidia-mig-1g.5gb.sock"]
    assert len({r.name for r in NVIDIA.resources}) == len(NVIDIA.resources)


def test_a_container_finds_its_cards() -> None:
    cards = make_cards()
    pod = pod_of({GPU: 2})
    request = NVIDIA.demand(pod)
    found = NVIDIA.environment(pod, request, "main", whole(request.containers[0], cards.gpus, cards), cards)
    assert found == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-1"}


def whole(container: ContainerRequest, gpus: tuple[Gpu, ...], cards: NodeGpus) -> Placement:
    return Placement(cards.node, "nvidia", {container.name: tuple(cut(container.part, gpu, 1) for gpu in gpus)})


# -- records


def test_nothing_is_written_beside_our_own_record_from_which_the_cards_are_read_back() -> None:
    cards = make_cards()
    pod = pod_of({GPU: 2})
    request = NVIDIA.demand(pod)
    placement = whole(request.containers[0], cards.gpus, cards)
    assert NVIDIA.annotations(pod, request, placement, cards, 0) == {}
    bound = pod_of({GPU: 2}, {PLACEMENT: write_placement(placement)}, node="n1")
    assert placement_of(bound, Demand(NVIDIA, request), cards) == placement


def test_which_cards_an_original_s_pod_has_only_kubelet_knows() -> None:
    cards, pod = make_cards(), pod_of({GPU: 2}, node="n1")
    assert NVIDIA.read_back(pod, cards) is None
    with pytest.raises(NotPlaced):
        placement_of(pod, Demand(NVIDIA, NVIDIA.demand(pod)), cards)


def test_whole_cards_that_hami_gave_are_read_back_from_its_record() -> None:
    """Such a pod names no parts, so it speaks nvidia."""
    written = {"hami.io/vgpu-devices-allocated": "GPU-n1-1,NVIDIA,15360,0:;"}
    holding = holding_of(pod_of({GPU: 1}, written, node="n1"), make_cards(), DIALECTS)
    assert holding is not None
    assert holding.charges.keys() == {"GPU-n1-1"}


def test_a_record_of_hami_s_that_cannot_be_read_is_named() -> None:
    written = {"hami.io/vgpu-devices-allocated": "GPU-gone,NVIDIA,15360,0:;"}
    with pytest.raises(BadRecord, match=r"hami\.io/vgpu-devices-allocated names card 'GPU-gone'"):
        NVIDIA.read_back(pod_of({GPU: 1}, written, node="n1"), make_cards())


def test_a_pod_of_the_original_with_cards_and_instances_is_counted_as_it_is() -> None:
    (container,) = NVIDIA.held(pod_of({GPU: 1, MIG: 2, "nvidia.com/mig-7g.40gb": 1})).containers
    assert container.part == Part(4, whole=True)


@pytest.mark.parametrize(
    ("limits", "constraints"),
    [
        pytest.param({GPU: 1}, Constraints(), id="whole cards"),
        pytest.param({MIG: 2}, Constraints(mig="1g.5gb"), id="instances"),
        pytest.param({GPU: 0, MIG: 2}, Constraints(mig="1g.5gb"), id="and 0 cards"),
        pytest.param({GPU: 1, MIG: 2}, Constraints(only_uuids=frozenset()), id="both: no card can be told"),
        pytest.param({MIG: 1, "nvidia.com/mig-7g.40gb": 1}, Constraints(only_uuids=frozenset()), id="two profiles"),
    ],
)
def test_what_a_bound_pod_holds_is_of_the_kind_that_it_asks_for(
    limits: dict[str, int], constraints: Constraints
) -> None:
    assert NVIDIA.held(pod_of(limits)).constraints == constraints


def test_a_pod_with_instances_has_none_of_the_cards_of_a_node_that_does_not_tell_of_its_instances() -> None:
    holding = holding_of(pod_of({MIG: 1}, node="n1"), make_cards(), DIALECTS)
    assert holding is not None
    assert (holding.unnamed, holding.charges, holding.doubt) == (0, {}, "")


# -- showing


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    demand = demand_of(msgspec.convert(NVIDIA.sample_pod(), Pod), DIALECTS)
    assert demand is not None
    assert (demand.dialect.name, demand.request.constraints.allows_model("Tesla T4")) == ("nvidia", True)

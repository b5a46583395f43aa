"""Annotations of an original that repeat our record are not read: a pod holds the same as if they were."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import Dialects, Holding, holding_of
from aliquot.dialects.gpushare import IDX, GpuShare
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.errors import AliquotError
from aliquot.model import NodeGpus, Placement, Pod, Slice
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_pod


class Thorough(GpuShare):
    def repeats(self, pod: Pod, record: Placement) -> bool:  # noqa: ARG002
        return False


HASTY, THOROUGH = Dialects({"gpushare": GpuShare()}), Dialects({"gpushare": Thorough()})
NUMBERS = st.integers(0, 2)
NAMES = ("a", "b", "i")


def held(pod: Pod, cards: NodeGpus, dialects: Dialects) -> Holding | str:
    try:
        holding = holding_of(pod, cards, dialects)
    except AliquotError as error:
        return str(error)
    assert holding is not None
    return holding


@st.composite
def containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    asked = {GPU_MEM: draw(st.sampled_from([None, 3, 8])), GPU_COUNT: draw(st.sampled_from([None, None, 1, 2]))}
    limits = {resource: str(amount) for resource, amount in asked.items() if amount is not None}
    return container_manifest(name, None, resources={"limits": limits or {GPU_MEM: "3"}})


def recorded(cards: NodeGpus, *numbers: int, mib: int) -> dict[str, str]:
    """Our record, in which every container has the same cards."""
    parts = tuple(Slice(gpu.uuid, gpu.index, gpu.minor, 0, mib) for gpu in map(cards.by_index.__getitem__, numbers))
    return {PLACEMENT: write_placement(Placement(cards.node, "gpushare", dict.fromkeys(NAMES, parts)))}


@st.composite
def bound(draw: st.DrawFn) -> tuple[Pod, NodeGpus]:
    """Mostly on one card that both records name; the node may have numbered its cards anew."""
    cards = make_cards(mib=(15360,) * 3, unit_mib=draw(st.sampled_from([1, 1024])))
    number, other = draw(NUMBERS), draw(NUMBERS)
    numbers = draw(st.sampled_from([[number], [number], sorted({number, other})]))
    annotations = recorded(cards, *numbers, mib=draw(st.sampled_from([1024, 3072, 8192])))
    annotations[IDX] = draw(st.sampled_from([str(number), str(number), str(other), f"{number},{other}"]))
    if draw(st.booleans()):
        annotations[ALLOCATION] = json.dumps({"0": {str(other): draw(st.integers(1, 9))}})
    spec: dict[str, Any] = {"containers": [draw(containers(name)) for name in NAMES[: draw(st.integers(1, 2))]]}
    if draw(st.booleans()):
        spec["initContainers"] = [draw(containers("i"))]
    labels = {GPU_COUNT: draw(st.sampled_from("12"))} if draw(st.booleans()) else {}
    pod = make_pod(metadata={"annotations": annotations, "labels": labels}, node="n1", **spec)
    places = draw(st.permutations(range(3)) if draw(st.booleans()) else st.just(range(3)))
    gpus = [replace(gpu, index=place, minor=place) for gpu, place in zip(cards.gpus, places, strict=True)]
    return pod, replace(cards, gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)))


@given(bound())
def test_a_pod_holds_the_same_as_if_the_repeated_annotations_were_read(drawn: tuple[Pod, NodeGpus]) -> None:
    pod, cards = drawn
    assert held(pod, cards, HASTY) == held(pod, cards, THOROUGH)


def test_what_we_write_repeats_our_record() -> None:
    dialect, cards = GpuShare(), make_cards()
    pod = make_pod(node="n1")
    gpu = cards.gpus[1]
    placement = Placement("n1", "gpushare", {"main": (Slice(gpu.uuid, gpu.index, gpu.minor, 0, 3072),)})
    written = dialect.annotations(pod, dialect.held(pod), placement, cards, 0)
    assert dialect.repeats(make_pod(metadata={"annotations": dict(written)}, node="n1"), placement)
    assert not dialect.repeats(pod, placement)

"""A commit is one write, whatever is asked again."""

import pytest

from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, DEV, IDX, POD
from aliquot.errors import BadDemand, NoRoom
from aliquot.ledger import State
from aliquot.model import Placement, Slice
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import container_manifest, make_cards
from tests.integration.room import Room


async def test_one_binding_carries_the_placement_and_the_five_annotations(room: Room) -> None:
    cards = await room.add_node()
    pod = await room.add_pod(gpu_mem=3)

    assert not (await room.commit(pod, "n1")).already

    (write,) = room.api.writes()
    assert (write.method, write.path) == ("POST", "/api/v1/namespaces/default/pods/p/binding")
    assert write.body["metadata"]["uid"] == pod.metadata.uid
    assert write.body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    bound = room.api_pod(pod)
    assert bound["spec"]["nodeName"] == "n1"
    annotations = dict(bound["metadata"]["annotations"])
    gpu = cards.gpus[0]
    expected = Placement("n1", "gpushare", {"main": (Slice(gpu.uuid, gpu.index, gpu.minor, 0, 3072),)})
    assert read_placement(annotations.pop(PLACEMENT)) == expected
    assert annotations == {
        IDX: "0",
        DEV: "15",
        POD: "3",
        ASSIGNED: "false",
        ASSUME_TIME: str(room.clock.wall_ns()),
    }
    await room.in_sync()
    assert room.used() == {0: 3}
    assert room.entries()[pod.metadata.uid].state is State.BOUND


async def test_the_annotations_of_a_user_are_overwritten(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(metadata={"annotations": {IDX: "1", POD: "99", PLACEMENT: "mine", "mine": "kept"}})
    await room.commit(pod, "n1")
    annotations = room.api_pod(pod)["metadata"]["annotations"]
    assert (annotations[IDX], annotations[POD], annotations["mine"]) == ("0", "3", "kept")
    assert read_placement(annotations[PLACEMENT]).node == "n1"


async def test_the_same_call_again_finds_the_pod_already_bound_and_changes_nothing(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    before = room.api_pod(pod)
    assert (await room.commit(pod, "n1")).already
    assert room.api_pod(pod) == before
    assert room.used() == {0: 3}


async def test_a_pod_without_gpu_is_bound_with_nothing_on_it(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(gpu_mem=None)
    assert not (await room.commit(pod, "n1")).already
    assert "annotations" not in room.api_pod(pod)["metadata"]
    assert room.used() == {}


async def test_a_pod_that_asks_too_much_is_refused_without_a_write(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(gpu_mem=16)
    with pytest.raises(NoRoom, match="Insufficient GPU Memory in one device"):
        await room.commit(pod, "n1")
    assert room.api.writes() == []
    assert room.used() == {}


async def test_a_bad_demand_is_refused_without_a_write(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(gpu_mem="10G")
    with pytest.raises(BadDemand, match="more than any GPU has"):
        await room.commit(pod, "n1")
    assert room.api.writes() == []


async def test_gpus_fill_up_best_fit_first_as_the_original_chooses_them(room: Room) -> None:
    """As the original gpushare does it: free 12207, 8138, 4069, 16276."""
    await room.add_node(make_cards(mib=(12207, 8138, 4069, 16276), unit_mib=1))
    chosen = []
    for name, amount in (("a", 8138), ("b", 16276), ("c", 4069), ("d", 1)):
        pod = await room.add_pod(name, amount)
        await room.commit(pod, "n1")
        chosen.append(room.api_pod(pod)["metadata"]["annotations"][IDX])
    assert chosen == ["1", "3", "2", "0"]


async def test_init_containers_count_as_the_largest_and_the_rest_as_the_sum(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod(
        containers=[container_manifest("a", 2), container_manifest("b", 3)],
        initContainers=[container_manifest("i", 4), container_manifest("s", 1, restartPolicy="Always")],
    )
    await room.commit(pod, "n1")
    assert room.used() == {0: 6}
    assert room.api_pod(pod)["metadata"]["annotations"][POD] == "6"

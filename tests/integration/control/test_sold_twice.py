"""Changes of a node that could sell a card twice: cards that come back, another unit, a lost capacity, MIG."""

from typing import Any

import pytest

from aliquot.dialects.node_reading import SERVES
from aliquot.embedded.api import resources
from aliquot.errors import NoRoom
from aliquot.kube import Client
from aliquot.ledger import Ledger, Owner
from aliquot.model import NodeGpus, Placement, Pod, Slice
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import GPU_MEM, T4, charge_of, container_manifest, make_cards, make_gpu
from tests.fakes import FakeClock
from tests.integration.control.test_late_placement import _labelled
from tests.integration.room import Room

RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def asking(**limits: str) -> dict[str, Any]:
    return {"containers": [container_manifest(gpu_mem=None) | {"resources": {"limits": limits}}]}


WHOLE = asking(**{"nvidia.com/gpu": "1"})


async def label(room: Room, **labels: str) -> None:
    room.api.registry.rewrite(
        resources.NODES,
        "",
        "n1",
        lambda node: _labelled(node, {SERVES + name: value for name, value in labels.items()}),
    )
    await room.in_sync()


async def lose_capacity(room: Room) -> None:
    """kubelet's node status no longer names whole cards."""

    def change(node: Any) -> Any:
        kept = {key: value for key, value in node["status"]["capacity"].items() if key != "nvidia.com/gpu"}
        return {**node, "status": {**node["status"], "capacity": kept, "allocatable": kept}}

    room.api.registry.rewrite(resources.NODES, "", "n1", change)
    await room.in_sync()


def cards_in_record(room: Room, pod: Pod) -> list[str]:
    record = room.api_pod(pod)["metadata"]["annotations"][PLACEMENT]
    return sorted(part.uuid for part in read_placement(record).slices())


async def sold(room: Room, pod: Pod) -> list[str]:
    """The cards that a pod is bound with; none if it is refused."""
    try:
        await room.commit(pod, "n1")
    except NoRoom:
        return []
    return cards_in_record(room, pod)


async def test_a_card_that_comes_back_is_still_that_of_the_pod_whose_record_names_it(room: Room) -> None:
    """Whole cards that our agent hands over: the pod has not started, its card leaves the inventory and returns."""
    cards = await room.add_node(capacity={"nvidia.com/gpu": "2"})
    await label(room, nvidia="true")
    first = await room.add_pod("first", **WHOLE)
    (own,) = await sold(room, first)
    await room.change_node(NodeGpus("n1", tuple(gpu for gpu in cards.gpus if gpu.uuid != own), 1024))
    await label(room, nvidia="true")
    await room.change_node(cards)
    second = await room.add_pod("second", **WHOLE)
    assert own not in await sold(room, second)


async def test_a_running_server_does_not_free_a_card_that_a_running_pod_has_got(room: Room) -> None:
    """NVIDIA's plugin gave it, on a node that is labelled for gpushare; then its resource is gone from the status."""
    await room.add_node(make_cards(mib=[T4]), capacity={"nvidia.com/gpu": "1"})
    await label(room, gpushare="true")
    first = await room.add_pod("first", node="n1", **WHOLE)
    await room.report(first, **RUNNING)
    await lose_capacity(room)
    second = await room.add_pod("second", 3)
    assert await sold(room, second) == []


async def test_another_memory_unit_does_not_shrink_what_a_pod_has(room: Room, client: Client) -> None:
    """`--memory-unit` of the agent changes from GiB to MiB under a running pod, and a new server lists."""
    await room.add_node(make_cards(mib=[T4]))
    first = await room.add_pod("first", 10)
    await sold(room, first)
    await room.report(first, **RUNNING)
    await room.change_node(make_cards(mib=[T4], unit_mib=1))
    second = await room.add_pod("second", 10240)
    assert await sold(room, second) == []
    async with Room(room.api, client, FakeClock()) as restarted:
        third = await restarted.add_pod("third", 10240)
        assert await sold(restarted, third) == []


@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": "1"}, {GPU_MEM: "20"}], ids=["a whole card", "a part"])
async def test_instances_of_a_card_that_a_pod_holds_are_not_sold(room: Room, limits: dict[str, str]) -> None:
    """An empty card is sold; before the pod has started it is cut into MIG instances."""
    card = make_gpu(0, mib=40960)
    await room.add_node(NodeGpus("n1", (card,), 1024), capacity={"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "7"})
    await label(room, nvidia="true", gpushare="true")
    first = await room.add_pod("first", **asking(**limits))
    assert await sold(room, first) == [card.uuid]
    cut = [make_gpu(1 + n, uuid=f"MIG-{n}", parent=card.uuid, profile="1g.5gb", mib=4864) for n in range(7)]
    await room.change_node(NodeGpus("n1", (card, *cut), 1024))
    await label(room, nvidia="true", gpushare="true")
    second = await room.add_pod("second", **asking(**{"nvidia.com/mig-1g.5gb": "1"}))
    assert await sold(room, second) == []


async def test_a_full_node_of_hami_s_dialect_that_loses_its_inventory_is_not_sold_again(room: Room) -> None:
    """kubelet counts ten shares of `nvidia.com/gpu` for each card that our agent offers in HAMi's words; without the
    inventory each share is taken for a whole card."""
    cards = await room.add_node(capacity={"nvidia.com/gpu": "20", GPU_MEM: "0", "aliyun.com/gpu-count": "0"})
    await label(room, hami="true")
    asked = asking(**{"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100"})
    for name in ("first", "second"):
        assert await sold(room, await room.add_pod(name, **asked))
    assert await sold(room, await room.add_pod("third", **asked)) == []
    room.api.registry.rewrite(
        resources.NODES, "", "n1", lambda node: {**node, "metadata": {**node["metadata"], "annotations": {}}}
    )
    await room.in_sync()
    fourth = await room.add_pod("fourth", **asked)
    assert await sold(room, fourth) == []
    await room.change_node(cards)


def test_the_agent_s_last_line_does_not_hand_over_a_card_beside_its_instance() -> None:
    """The ledger in which the agent enters what it has handed over."""
    card = make_gpu(0, mib=40960)
    instance = make_gpu(1, uuid="MIG-0", parent=card.uuid, profile="1g.5gb", mib=4864)
    ledger = Ledger()
    ledger.set_cards(NodeGpus("n1", (card, instance), 1024))
    of_instance = Placement("n1", "nvidia", {"main": (Slice("MIG-0", 1, 4, 100, 4864),)})
    of_card = Placement("n1", "nvidia", {"main": (Slice(card.uuid, 0, 3, 100, 40960),)})
    ledger.adopt(Owner("second"), of_instance, charge_of(of_instance))
    with pytest.raises(NoRoom):
        ledger.claim(Owner("first"), of_card, charge_of(of_card))

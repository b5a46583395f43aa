"""At PreStart a container gets exactly its placed card, or nothing and a reason."""

import asyncio
from collections import Counter

import msgspec
import pytest

from aliquot.agent.handover import PATIENCE
from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, CONTAINER, DEV, IDX, POD
from aliquot.errors import Refused
from aliquot.model.records import PLACEMENT
from tests.factories import container_manifest, make_cards
from tests.fakes import answer, until
from tests.integration.agent.node import AgentNode


async def test_a_container_finds_its_card_and_its_share_inside(node: AgentNode) -> None:
    pod = await node.admitted(gpu_mem=3, card=1)
    assert await node.start(pod) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-1",
        IDX: "1",
        POD: "3",
        CONTAINER: "3",
        DEV: "15",
    }


async def test_ten_equal_pods_started_at_once_each_get_the_card_of_their_own_annotation(node: AgentNode) -> None:
    pods = [node.make(f"p{number}", 3, card=number % 2) for number in range(10)]
    node.show(*pods)
    await asyncio.gather(*map(node.kubelet.admit, pods))
    inside = await asyncio.gather(*map(node.start, pods))
    assert [found[IDX] for found in inside] == [pod.metadata.annotations[IDX] for pod in pods]
    assert Counter(found["NVIDIA_VISIBLE_DEVICES"] for found in inside) == {"GPU-n1-0": 5, "GPU-n1-1": 5}


async def test_init_and_main_containers_that_share_ids_each_get_their_own_name(node: AgentNode) -> None:
    pod = await node.admitted(
        containers=[container_manifest("main", 3), container_manifest("side", 1)],
        initContainers=[container_manifest("fetch", 4), container_manifest("watch", 1, restartPolicy="Always")],
        card=1,
    )
    inside = await node.start_all(pod)
    assert {name: found[CONTAINER] for name, found in inside.items()} == {
        "fetch": "4",
        "watch": "1",
        "main": "3",
        "side": "1",
    }
    assert {found["NVIDIA_VISIBLE_DEVICES"] for found in inside.values()} == {"GPU-n1-1"}
    assert {found[POD] for found in inside.values()} == {"5"}


async def test_a_pod_whose_only_gpu_container_is_an_init_container_is_served(node: AgentNode) -> None:
    """PodResources never lists it."""
    pod = await node.admitted(
        containers=[container_manifest("main", None)], initContainers=[container_manifest("fetch", 4)]
    )
    assert (await node.start(pod, "fetch"))[CONTAINER] == "4"


async def test_marks_are_written_once_with_the_pod_s_uid(node: AgentNode) -> None:
    pod = await node.admitted(initContainers=[container_manifest("fetch", 1)])
    await node.start_all(pod)
    await node.start(pod)
    marks = {ASSIGNED: "true", ASSUME_TIME: str(node.clock.wall_ns())}
    (patch,) = node.patches()
    assert patch["metadata"]["uid"] == pod.metadata.uid
    assert patch["metadata"]["annotations"].keys() == marks.keys()
    assert patch["metadata"]["annotations"][ASSIGNED] == "true"


async def test_a_pod_that_carries_its_marks_is_not_written_to(node: AgentNode) -> None:
    pod = node.annotated(await node.admitted(), **{ASSIGNED: "true"})
    node.show(pod)
    await node.start(pod)
    assert node.patches() == []


async def test_a_mark_that_cannot_be_written_is_tried_again_at_the_next_start(node: AgentNode) -> None:
    pod = await node.admitted()
    node.api.script("PATCH", "/pods/p$", answer(403, message="no right to patch pods"))
    with pytest.raises(Refused, match="no right to patch pods"):
        await node.start(pod)
    await node.start(pod)
    assert len(node.patches()) == 2


async def test_the_runtime_gets_a_moment_to_hear_of_a_new_spec_and_none_for_an_old_one(node: AgentNode) -> None:
    pod = await node.admitted()
    await node.start(pod)
    assert node.clock.asked == [0.1]
    await node.start(pod)
    assert node.clock.asked == [0.1]


# -- refusals


async def test_a_container_without_a_placement_waits_and_is_then_refused_in_words(node: AgentNode) -> None:
    pod = await node.admitted(card=None)
    starting = asyncio.create_task(node.start(pod))
    await until(lambda: node.clock.sleeping)
    await node.clock.move(PATIENCE - 0.1)
    assert not starting.done()
    await node.clock.move(0.1)
    with pytest.raises(Refused) as refusal:
        await starting
    assert str(refusal.value).endswith(
        "pod default/p is on node n1 without a placement, so it gets no card: "
        "is Aliquot configured as an extender of the scheduler that bound it?"
    )
    assert list(node.cdi_folder.iterdir()) == []
    assert node.patches() == []


async def test_a_placement_that_comes_late_is_waited_for(node: AgentNode) -> None:
    pod = await node.admitted(card=None)
    starting = asyncio.create_task(node.start(pod))
    await until(lambda: node.clock.sleeping)
    await node.clock.move(PATIENCE / 2)
    node.show(node.make("other"))
    await until(lambda: node.clock.sleeping)
    node.show(node.placed(pod, 1))
    assert (await starting)[IDX] == "1"


async def test_a_pod_that_the_api_server_does_not_show_is_waited_for_and_then_refused(node: AgentNode) -> None:
    pod = node.make()
    await node.kubelet.admit(pod)
    starting = asyncio.create_task(node.start(pod))
    await until(lambda: node.clock.sleeping)
    await node.clock.move(PATIENCE)
    with pytest.raises(Refused, match="the API server shows no pod default/p on this node"):
        await starting


async def test_a_placement_that_would_over_commit_the_card_is_refused_until_there_is_room(node: AgentNode) -> None:
    first = await node.admitted("first", 10)
    await node.start(first)
    second = await node.admitted("second", 10)
    starting = asyncio.create_task(node.start(second))
    await until(lambda: node.clock.sleeping)
    await node.clock.move(PATIENCE)
    text = "the placement of pod default/second would over-commit this node: card GPU-n1-0 has 5120 MiB"
    with pytest.raises(Refused, match=text):
        await starting
    del node.shown[first.metadata.uid]
    assert (await node.start(second))[IDX] == "0"


async def test_over_commitment_is_seen_by_an_agent_that_was_started_anew(node: AgentNode) -> None:
    """The marks on the first pod tell what was handed over before."""
    first = await node.admitted("first", 10)
    await node.start(first)
    node.show(node.annotated(first, **{ASSIGNED: "true"}))
    await node.restart_agent()
    second = await node.admitted("second", 10)
    starting = asyncio.create_task(node.start(second))
    await until(lambda: node.clock.sleeping)
    await node.clock.move(PATIENCE)
    with pytest.raises(Refused, match="would over-commit this node"):
        await starting


RECORD = '{{"v":1,"node":"{node}","dialect":"gpushare","containers":{{{containers}}}}}'
PART = '{{"uuid":"{uuid}","index":0,"minor":0,"cores":0,"mib":3072}}'


@pytest.mark.parametrize(
    ("record", "text"),
    [
        pytest.param("{", "aliquot.io/placement cannot be read", id="a record that cannot be read"),
        pytest.param(
            RECORD.format(node="n2", containers=""),
            "aliquot.io/placement names node n2, but the pod is bound to n1",
            id="a record for another node",
        ),
        pytest.param(
            RECORD.format(node="n1", containers=f'"main":[{PART.format(uuid="GPU-gone")}]'),
            "the placement names card GPU-gone, which this node does not have",
            id="a card that the node does not have",
        ),
        pytest.param(
            RECORD.format(node="n1", containers=f'"other":[{PART.format(uuid="GPU-n1-0")}]'),
            "aliquot.io/placement has no part for container main",
            id="a part for another container",
        ),
        pytest.param(
            RECORD.format(
                node="n1", containers=f'"main":[{PART.format(uuid="GPU-n1-0")},{PART.format(uuid="GPU-n1-1")}]'
            ),
            "the placement must name one card of node n1, and names GPU-n1-0, GPU-n1-1",
            id="two cards in a dialect of one",
        ),
    ],
)
async def test_a_placement_that_cannot_be_right_is_refused_at_once(node: AgentNode, record: str, text: str) -> None:
    pod = await node.admitted(card=None)
    node.show(node.annotated(pod, **{PLACEMENT: record}))
    with pytest.raises(Refused, match=text):
        await node.start(pod)
    assert list(node.cdi_folder.iterdir()) == []


async def test_a_card_that_is_not_healthy_is_refused(node: AgentNode) -> None:
    pod = await node.admitted()
    await node.restart_agent(make_cards(unhealthy=[0]))
    with pytest.raises(Refused, match="card GPU-n1-0, which is not healthy"):
        await node.start(pod)


async def test_a_pod_that_another_plug_in_was_asked_for_is_refused(node: AgentNode) -> None:
    """Its demand changed hands: kubelet gave ids to a pod that asks for no GPU."""
    pod = await node.admitted()
    bare = node.make("bare", None, card=None)
    node.show(msgspec.structs.replace(pod, spec=bare.spec))
    with pytest.raises(Refused, match="asks for no GPU, but kubelet gave it aliyun"):
        await node.start(pod)


async def test_a_pod_that_is_being_deleted_gets_no_card(node: AgentNode) -> None:
    pod = await node.admitted()
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    node.show(msgspec.structs.replace(pod, metadata=metadata))
    with pytest.raises(Refused, match="pod default/p is being deleted"):
        await node.start(pod)


async def test_a_missing_device_node_is_named(node: AgentNode) -> None:
    pod = await node.admitted()
    missing = node.cdi_folder.parent / "dev" / f"nvidia{node.cards.gpus[0].minor}"
    missing.unlink()
    with pytest.raises(Refused, match=f"the device node {missing} is missing: is the driver loaded"):
        await node.start(pod)


async def test_a_folder_that_cannot_be_written_is_named(node: AgentNode) -> None:
    pod = await node.admitted()
    node.cdi_folder.rmdir()
    with pytest.raises(Refused, match="cannot be written: No such file or directory"):
        await node.start(pod)


async def test_a_pod_that_the_original_placed_is_served_by_its_own_annotation(node: AgentNode) -> None:
    pod = await node.admitted(card=None)
    node.show(node.annotated(pod, **{IDX: "1"}))
    assert (await node.start(pod))["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-1"

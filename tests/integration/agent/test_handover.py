"""At PreStart a container gets exactly its placed card, or nothing and a reason."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.agent.devices import ContainerEdits
from aliquot.agent.handover import PATIENCE
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.container_runtime import NvidiaRuntime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, CONTAINER, DEV, IDX, POD
from aliquot.errors import Refused
from aliquot.model import Gpu
from aliquot.model.kubernetes import PodStatus
from aliquot.model.records import PLACEMENT
from tests.factories import container_manifest, make_cards, make_node
from tests.fakes import SECONDS, answer, until
from tests.integration.agent.node import AgentNode, ended, runs


async def test_a_container_finds_its_card_and_its_share_inside(node: AgentNode) -> None:
    pod = await node.admitted(gpu_mem=3, card=1)
    assert await node.start(pod) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-1",
        IDX: "1",
        POD: "3",
        CONTAINER: "3",
        DEV: "15",
    }


async def test_where_nvidias_runtime_would_add_cards_a_container_finds_void(node: AgentNode, folder: Path) -> None:
    """The spec's own variables win over the dialect's."""
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.1"):
        (folder / "driver/lib64").mkdir(parents=True, exist_ok=True)
        (folder / "driver/lib64" / name).touch()
    driver = DriverFiles("/", str(folder / "driver"))
    injection = Injection(ToolkitSpecs([]), driver, NvidiaRuntime(("nvidia",), is_default=True))
    node.devices = NvidiaDevices(folder / "dev", injection=injection)
    await node.restart_agent()
    inside = await node.start(await node.admitted(gpu_mem=3, card=1))
    assert (inside["NVIDIA_VISIBLE_DEVICES"], inside[IDX]) == ("void", "1")


class SlowDriver(NvidiaDevices):
    """Its files are on a disk that does not answer until the test says so."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.answers, self.is_asked = threading.Event(), False

    def edits(self, gpus: Sequence[Gpu], *, with_cdi: bool = True) -> ContainerEdits:
        self.is_asked = True
        assert self.answers.wait(SECONDS), "the agent stands still meanwhile"
        return super().edits(gpus, with_cdi=with_cdi)


@pytest.mark.parametrize("with_cdi", [pytest.param(True, id="at PreStart"), pytest.param(False, id="at Allocate")])
async def test_the_agent_goes_on_while_a_disk_does_not_answer(node: AgentNode, folder: Path, *, with_cdi: bool) -> None:
    node.devices = slow = SlowDriver(folder / "dev")
    node.with_cdi = with_cdi
    await node.restart_agent()
    pod = node.make(gpu_mem=3, card=1)
    node.show(pod)

    async def admit_and_start() -> dict[str, str]:
        await node.admit(pod)
        return await node.start(pod)

    starting = asyncio.create_task(admit_and_start())
    await until(lambda: slow.is_asked, "the driver's files are read")
    slow.answers.set()
    assert (await starting)[IDX] == "1"


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


# -- the card is found by its uuid, whatever else the record says


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"minor": 4}, id="the device node of the other card"),
        pytest.param({"minor": 99}, id="one that the machine does not have"),
        pytest.param({"index": 1}, id="the index of the other card"),
    ],
)
async def test_the_device_node_is_that_of_the_card_s_uuid_whatever_the_record_says(
    node: AgentNode, forged: dict[str, int]
) -> None:
    pod = await node.admitted()
    node.show(node.placed(pod, 0, **forged))
    assert await node.device_nodes(pod) == ["nvidia3"]
    assert (await node.start(pod))[IDX] == "0"


async def test_a_card_whose_minor_and_index_changed_with_a_reboot_is_still_the_pod_s_card(node: AgentNode) -> None:
    pod = await node.admitted(card=0)
    first, second = node.cards.gpus
    swapped = (replace(second, index=0, minor=first.minor), replace(first, index=1, minor=second.minor))
    await node.restart_agent(replace(node.cards, gpus=swapped))
    inside = await node.start(pod)
    assert (inside["NVIDIA_VISIBLE_DEVICES"], inside[IDX]) == (first.uuid, "1")
    assert await node.device_nodes(pod) == [f"nvidia{second.minor}"]


async def test_a_placement_from_before_the_inventory_names_the_card_of_its_index(node: AgentNode) -> None:
    """The server placed by `node/index` while it knew the node's capacity alone."""
    pod = await node.admitted()
    node.show(node.placed(pod, 1, uuid="n1/1"))
    inside = await node.start(pod)
    assert (inside["NVIDIA_VISIBLE_DEVICES"], inside[IDX]) == ("GPU-n1-1", "1")
    assert await node.device_nodes(pod) == ["nvidia4"]


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
    text = "the placement of pod default/second would over-commit this node: card GPU-n1-0 has 5120 MiB"
    assert text in await node.refusal(second)
    node.show(ended(first))
    assert (await node.start(second))[IDX] == "0"


FORGED: list[Any] = [
    pytest.param({"mib": 0}, id="a part of nothing"),
    pytest.param({"mib": 1}, id="a part too small"),
    pytest.param({"uuid": "n1/0"}, id="a card by the name from before the inventory"),
]


@pytest.mark.parametrize("forged", FORGED)
async def test_what_a_pod_holds_is_at_least_what_it_asks_for_whatever_its_record_says(
    node: AgentNode, forged: dict[str, Any]
) -> None:
    await node.start(await node.admitted("first", 10))
    second = await node.admitted("second", 10)
    node.show(node.placed(second, 0, **forged))
    assert "would over-commit this node: card GPU-n1-0 has 5120 MiB" in await node.refusal(second)


@pytest.mark.parametrize("forged", FORGED)
async def test_what_another_plug_in_has_handed_over_counts_as_asked_for_whatever_its_record_says(
    node: AgentNode, forged: dict[str, Any]
) -> None:
    first = await node.admitted("first", 10)
    node.show(runs(node.annotated(node.placed(first, 0, **forged), **{ASSIGNED: "true"})))
    second = await node.admitted("second", 10)
    assert "would over-commit this node: card GPU-n1-0 has 5120 MiB" in await node.refusal(second)


async def test_a_record_that_is_rewritten_after_the_hand_over_changes_nothing(node: AgentNode) -> None:
    first = await node.admitted("first", 10, card=0)
    await node.start(first)
    node.show(node.placed(first, 1, mib=0))
    assert "would over-commit" in await node.refusal(await node.admitted("second", 10, card=0))
    assert await node.start(await node.admitted("third", 10, card=1))
    assert (await node.start(first))["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-0", "a container that starts again"


GARBAGE: list[Any] = [
    pytest.param({PLACEMENT: "{"}, id="a record that cannot be read"),
    pytest.param({PLACEMENT: '{"v":9}'}, id="a record of a later version"),
    pytest.param({PLACEMENT: '{"v":1,"node":"n1","dialect":"gpushare","containers":{}}'}, id="a record of nothing"),
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_pod_that_got_an_unknown_card_from_another_plug_in_counts_on_every_card(
    node: AgentNode, garbage: dict[str, str]
) -> None:
    first = await node.admitted("first", 3, card=0)
    node.show(runs(node.annotated(first, **garbage, **{ASSIGNED: "true"})))
    for card in (0, 1):
        large = await node.admitted(f"large-{card}", 13, card=card)
        assert f"would over-commit this node: card GPU-n1-{card} has 12288 MiB" in await node.refusal(large)
        node.kubelet.release(large.metadata.uid)
    assert (await node.start(await node.admitted("fits", 12, card=1)))[IDX] == "1"


NEVER_RUN: list[Any] = [
    pytest.param({}, id="no record"),
    pytest.param({IDX: "0"}, id="an index"),
    pytest.param({IDX: "99"}, id="an index that the node does not have"),
    *GARBAGE,
]


@pytest.mark.parametrize("mark", [{}, {ASSIGNED: "true"}], ids=["no mark", "the mark of a hand-over"])
@pytest.mark.parametrize("record", NEVER_RUN)
async def test_a_pod_that_never_ran_counts_nowhere(
    node: AgentNode, record: dict[str, str], mark: dict[str, str]
) -> None:
    """Users can write marks and records. A pod that another plugin served has run."""
    waits = await node.admitted("waits", 3, card=None)
    node.show(node.annotated(waits, **record, **mark))
    await node.restart_agent()
    assert (await node.start(await node.admitted("large", 15, card=0)))[IDX] == "0"


async def test_a_container_starts_again_on_its_card_though_the_card_was_over_committed_meanwhile(
    node: AgentNode,
) -> None:
    """Another plugin did that. What our pod has, it keeps; a new pod gets nothing."""
    ours = await node.admitted("ours", 3, card=0)
    await node.start(ours)
    node.show(runs(await node.admitted("theirs", 15, card=0)))
    assert (await node.start(ours))[IDX] == "0"
    assert "would over-commit this node" in await node.refusal(await node.admitted("new", 1, card=0))


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
            "aliquot.io/placement names card GPU-gone, which node n1 does not have",
            id="a card that the node does not have",
        ),
        pytest.param(
            RECORD.format(node="n1", containers=f'"other":[{PART.format(uuid="GPU-n1-0")}]'),
            "aliquot.io/placement names 0 cards for container main",
            id="a part for another container",
        ),
        pytest.param(
            RECORD.format(node="n1", containers=f'"main":[{PART.format(uuid="GPU-n1-0")}]').replace("gpushare", "hami"),
            "aliquot.io/placement is of dialect hami, but the pod uses dialect gpushare",
            id="a record of another dialect",
        ),
        pytest.param(
            RECORD.format(node="n1", containers='"main":[]'),
            "aliquot.io/placement names 0 cards for container main",
            id="no part for the container",
        ),
        pytest.param(
            RECORD.format(
                node="n1", containers=f'"main":[{PART.format(uuid="GPU-n1-0")},{PART.format(uuid="GPU-n1-1")}]'
            ),
            "aliquot.io/placement names 2 cards for container main, which asks for 1",
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
    with pytest.raises(Refused, match="card GPU-n1-0 of the placement is unhealthy"):
        await node.start(pod)


async def test_a_pod_that_another_plug_in_was_asked_for_is_refused(node: AgentNode) -> None:
    """Its demand changed hands: kubelet gave ids to a pod that requests no GPU."""
    pod = await node.admitted()
    bare = node.make("bare", None, card=None)
    node.show(msgspec.structs.replace(pod, spec=bare.spec))
    with pytest.raises(Refused, match="requests no GPU, but kubelet allocated aliyun"):
        await node.start(pod)


async def test_a_pod_that_is_being_deleted_gets_no_card(node: AgentNode) -> None:
    pod = await node.admitted()
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    node.show(msgspec.structs.replace(pod, metadata=metadata))
    with pytest.raises(Refused, match="pod default/p is being deleted"):
        await node.start(pod)


async def test_a_pod_of_which_kubelet_s_two_records_tell_two_names_gets_no_card(node: AgentNode) -> None:
    """The checkpoint gives the ids to the UID of one pod, PodResources to the name of another."""
    pod, other = await node.admitted("p"), node.make("other")
    node.show(other)
    path = node.kubelet.folder / "kubelet_internal_checkpoint"
    path.write_text(path.read_text().replace(pod.metadata.uid, other.metadata.uid))
    with pytest.raises(Refused, match="PodResources API disagree: default/other or default/p"):
        await node.start(pod)
    assert list(node.cdi_folder.iterdir()) == []


async def test_a_missing_device_node_is_named(node: AgentNode) -> None:
    pod = await node.admitted()
    missing = node.cdi_folder.parent / "dev" / f"nvidia{node.cards.gpus[0].minor}"
    missing.unlink()
    with pytest.raises(Refused, match=f"the device node {missing} is missing: is the driver loaded"):
        await node.start(pod)


async def test_a_folder_that_cannot_be_written_is_named_and_the_pod_is_not_marked(node: AgentNode) -> None:
    pod = await node.admitted()
    node.cdi_folder.rmdir()
    with pytest.raises(Refused, match="cannot be written: No such file or directory"):
        await node.start(pod)
    assert node.patches() == [], "marked is only what was handed over"


async def test_a_pod_that_the_original_placed_is_served_by_its_own_annotation(node: AgentNode) -> None:
    pod = await node.admitted(card=None)
    node.show(node.annotated(pod, **{IDX: "1"}))
    assert (await node.start(pod))["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-1"


# -- what a user writes on a running pod


@pytest.mark.parametrize("mark", ["", "false", "true"])
async def test_a_pod_that_runs_by_another_plug_in_counts_whatever_its_mark_says(node: AgentNode, mark: str) -> None:
    first = await node.admitted("first", 10)
    node.show(runs(node.annotated(first, **{ASSIGNED: mark})))
    second = await node.admitted("second", 10)
    assert "would over-commit this node: card GPU-n1-0 has 5120 MiB" in await node.refusal(second)


async def test_a_pod_that_runs_with_two_dialects_counts_on_every_card(node: AgentNode) -> None:
    limits = {"aliyun.com/gpu-mem": "10", "tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "1"}
    node.show(runs(node.make("odd", containers=[container_manifest(resources={"limits": limits})], card=None)))
    assert "would over-commit this node" in await node.refusal(await node.admitted("second", 10, card=1))


async def test_a_pod_that_was_refused_counts_nowhere_though_another_of_its_containers_runs(node: AgentNode) -> None:
    small = container_manifest("small", None, resources={"limits": {"aliquot.io/gpu": "0"}})
    limits = {"aliyun.com/gpu-mem": "1", "aliquot.io/gpu": "1"}
    odd = node.make(
        "odd", containers=[small, container_manifest("main", None, resources={"limits": limits})], card=None
    )
    node.show(runs(odd, "small"))
    assert (await node.start(await node.admitted("whole", 15)))[IDX] == "0"


async def test_a_pod_counts_nowhere_that_runs_with_what_no_plug_in_has_registered(node: AgentNode) -> None:
    container = container_manifest("main", None, resources={"limits": {"tencent.com/vcuda-core": "100"}})
    node.show(runs(node.make("odd", containers=[container], card=None)))
    node.hand_over.store.see_node(make_node("n1", node.cards))
    assert (await node.start(await node.admitted("whole", 15)))[IDX] == "0"


async def test_a_pod_is_marked_though_an_init_container_without_gpu_has_run_before(node: AgentNode) -> None:
    pod = await node.admitted(initContainers=[container_manifest("fetch", None)])
    status = {"initContainerStatuses": [{"name": "fetch", "state": {"terminated": {}}}]}
    node.show(msgspec.structs.replace(pod, status=msgspec.convert(status, PodStatus)))
    await node.start(pod)
    (patch,) = node.patches()
    assert patch["metadata"]["annotations"][ASSIGNED] == "true"

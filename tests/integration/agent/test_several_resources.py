"""A dialect with several resources: each has its plugin, and a container gets its devices exactly once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.agent.container_edits import ALSO_ASKED
from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import CONTAINER, DEV, IDX, POD
from aliquot.errors import Refused
from aliquot.kube import Client
from aliquot.model import NodeGpus
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_gpu
from tests.fakes import ScriptedApi
from tests.integration.agent.node import DIALECT, AgentNode, runs

MEMORY, COUNT = DIALECT.resources
BOTH = {GPU_MEM: "8", GPU_COUNT: "2"}
TWO_CARDS = {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-1", IDX: "0,1", POD: "8", CONTAINER: "4", DEV: "15"}
ORDERS: list[Any] = [
    pytest.param(BOTH, id="memory first"),
    pytest.param(dict(reversed(BOTH.items())), id="count first"),
]


def asking(limits: dict[str, str], name: str = "main", **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": limits}, **fields)


def count(cards: int, name: str = "main") -> dict[str, Any]:
    return asking({GPU_COUNT: str(cards)}, name)


# -- whole cards


async def test_a_container_that_asks_for_the_number_of_cards_alone_finds_its_whole_card(node: AgentNode) -> None:
    pod = await node.admitted(containers=[count(1)], card=1)
    environment, found = await node.inside(pod)
    assert environment == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-1", IDX: "1", POD: "15", CONTAINER: "15", DEV: "15"}
    assert found == ["nvidia4"]
    assert len(node.patches()) == 1


async def test_a_container_that_asks_for_two_cards_finds_both(node: AgentNode) -> None:
    pod = await node.admitted(containers=[count(2)], card=(0, 1))
    environment, found = await node.inside(pod)
    assert environment == {**TWO_CARDS, POD: "30", CONTAINER: "15"}
    assert found == ["nvidia3", "nvidia4"]


async def test_init_and_main_container_with_the_same_id_each_find_the_card(node: AgentNode) -> None:
    pod = await node.admitted(containers=[count(1)], initContainers=[count(1, "fetch")], card=1)
    assert {name: found[IDX] for name, found in (await node.start_all(pod)).items()} == {"fetch": "1", "main": "1"}


async def test_a_whole_card_without_a_placement_is_not_handed_over(node: AgentNode) -> None:
    pod = await node.admitted(containers=[count(1)], card=None)
    assert "without a placement, so it gets no card" in await node.refusal(pod)
    assert list(node.cdi_folder.iterdir()) == []


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart of the agent"])
async def test_parts_and_whole_cards_are_in_the_same_books(node: AgentNode, restart: bool) -> None:
    part = await node.admitted("part", 1, card=0)
    await node.start(part)
    whole = await node.admitted("whole", containers=[count(1)], card=1)
    await node.start(whole)
    if restart:
        for pod in (part, whole):
            node.show(node.annotated(pod, ALIYUN_COM_GPU_MEM_ASSIGNED="true"))
        await node.restart_agent()
    late_part = await node.admitted("late-part", 1, card=1)
    assert "would over-commit this node: card GPU-n1-1" in await node.refusal(late_part)
    late_whole = await node.admitted("late-whole", containers=[count(1)], card=0)
    assert "would over-commit this node: card GPU-n1-0" in await node.refusal(late_whole)


# -- both in one container


@pytest.mark.parametrize("limits", ORDERS)
async def test_a_container_that_asks_for_both_finds_its_devices_once_whichever_is_prepared_first(
    node: AgentNode, limits: dict[str, str]
) -> None:
    (node.cdi_folder.parent / "dev" / "nvidiactl").touch()
    pod = await node.admitted(containers=[asking(limits)], card=(0, 1))
    environment, found = await node.inside(pod)
    assert environment == {**TWO_CARDS, ALSO_ASKED: GPU_COUNT}
    assert found == ["nvidia3", "nvidia4", "nvidiactl"]
    assert len(await node.kubelet.pre_start(pod, "main")) == 2
    assert len(node.patches()) == 1, "marked once"


@pytest.mark.parametrize("limits", ORDERS)
async def test_an_agent_started_anew_before_the_start_keeps_both_promises(
    node: AgentNode, limits: dict[str, str]
) -> None:
    pod = await node.admitted(containers=[asking(limits)], card=(0, 1))
    await node.restart_agent()
    assert await node.inside(pod) == ({**TWO_CARDS, ALSO_ASKED: GPU_COUNT}, ["nvidia3", "nvidia4"])


@pytest.mark.parametrize("first", [MEMORY, COUNT], ids=lambda resource: resource.name)
async def test_an_agent_started_anew_between_the_two_prestarts_gives_the_devices_once(
    node: AgentNode, first: Any
) -> None:
    pod = await node.admitted(containers=[asking(BOTH)], card=(0, 1))
    await node.pre_start(pod, first)
    (only,) = node.cdi_folder.iterdir()
    await node.restart_agent()
    assert await node.inside(pod) == ({**TWO_CARDS, ALSO_ASKED: GPU_COUNT}, ["nvidia3", "nvidia4"])
    assert only in node.cdi_folder.iterdir(), "the first promise is kept"


async def test_each_container_has_its_own_carrier(node: AgentNode) -> None:
    """One asks for both, its neighbour for memory alone."""
    containers = [asking(BOTH), asking({GPU_MEM: "2"}, "side")]
    pod = await node.admitted(containers=containers, card=(0, 1))
    assert await node.inside(pod) == ({**TWO_CARDS, POD: "10", ALSO_ASKED: GPU_COUNT}, ["nvidia3", "nvidia4"])
    assert await node.inside(pod, "side") == ({**TWO_CARDS, POD: "10", CONTAINER: "1"}, ["nvidia3", "nvidia4"])


async def test_a_refused_container_gets_neither(node: AgentNode) -> None:
    pod = await node.admitted(containers=[asking(BOTH)], card=None)
    assert "without a placement" in await node.refusal(pod)
    assert list(node.cdi_folder.iterdir()) == []


async def test_the_label_gives_several_cards_with_memory_alone(node: AgentNode) -> None:
    pod = await node.admitted(gpu_mem=8, metadata={"labels": {GPU_COUNT: "2"}}, card=(0, 1))
    assert await node.inside(pod) == (TWO_CARDS, ["nvidia3", "nvidia4"])


# -- several dialects on one node


@pytest.fixture
async def mixed(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[AgentNode]:
    dialects = [standard_dialects()[name] for name in ("gpushare", "elastic", "nvidia")]
    async with AgentNode(folder, scripted, client, make_cards(), dialects) as running:
        yield running


async def test_a_dialect_without_marks_writes_nothing_to_the_pod(mixed: AgentNode) -> None:
    limits = {"elasticgpu.io/gpu-memory": "4096", "elasticgpu.io/gpu-core": "20"}
    pod = await mixed.admitted(containers=[asking(limits)], card=1)
    environment, found = await mixed.inside(pod)
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-1"
    assert environment[ALSO_ASKED] == "elasticgpu.io/gpu-memory"
    assert found == ["nvidia4"]
    assert mixed.patches() == []


async def test_dialects_that_share_a_node_share_its_books(mixed: AgentNode) -> None:
    await mixed.start(await mixed.admitted("first", containers=[asking({"nvidia.com/gpu": "1"})], card=0))
    second = await mixed.admitted("second", 3, card=0)
    assert "would over-commit this node: card GPU-n1-0" in await mixed.refusal(second)
    assert await mixed.start(await mixed.admitted("third", 3, card=1))


async def test_a_whole_card_that_a_pod_of_another_dialect_holds_is_named_as_the_reason(mixed: AgentNode) -> None:
    """The scheduler that bound the pod counts nvidia.com/gpu by itself, and asked nobody."""
    for card in range(2):
        await mixed.start(await mixed.admitted(f"part-{card}", 3, card=card))
    whole = await mixed.admitted("whole", containers=[asking({"nvidia.com/gpu": "1"})], card=None)
    assert (await mixed.refusal(whole)).endswith(
        "pod default/whole is on node n1 without a placement, so it gets no card: of 2 nvidia.com/gpu on this node 0 "
        "are free, and it waits for default/part-0, default/part-1 to end"
    )


async def test_a_whole_card_that_is_free_but_not_placed_is_the_schedulers_business(mixed: AgentNode) -> None:
    await mixed.start(await mixed.admitted("part", 3, card=0))
    whole = await mixed.admitted("whole", containers=[asking({"nvidia.com/gpu": "1"})], card=None)
    assert "is Aliquot configured as an extender" in await mixed.refusal(whole)


async def test_an_instance_that_a_pod_of_another_dialect_holds_is_named_as_the_reason(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    cut = make_gpu(0)
    instance = replace(cut, uuid="MIG-1", index=1010, mib=4864, parent=cut.uuid, profile="1g.5gb")
    cards = NodeGpus("n1", (cut, make_gpu(1), instance), 1024)
    dialects = [standard_dialects()[name] for name in ("aliquot", "nvidia")]
    async with AgentNode(folder, scripted, client, cards, dialects) as node:
        ours = node.make("ours", containers=[asking({"aliquot.io/gpu": "1"})], card=None)
        node.show(runs(node.placed(ours, 1010)))
        theirs = await node.admitted("theirs", containers=[asking({"nvidia.com/mig-1g.5gb": "1"})], card=None)
        assert (await node.refusal(theirs)).endswith(
            "of 1 nvidia.com/mig-1g.5gb on this node 0 are free, and it waits for default/ours to end"
        )


async def test_a_pod_in_the_words_of_a_dialect_that_the_node_does_not_serve_is_refused(mixed: AgentNode) -> None:
    """Its resource is offered, but for another dialect: kubelet's count of it means something else."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    pod = await mixed.admitted(containers=[asking(limits)], card=None)
    with pytest.raises(Refused, match=r"uses dialect hami, but this node serves nvidia.com/gpu for dialect nvidia"):
        await mixed.start(pod)

"""A runtime without CDI: the answer to Allocate carries the devices, and PreStart checks that the right pod got it."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.agent import checkpoint
from aliquot.agent.allocating import PATIENCE
from aliquot.agent.container_edits import ALSO_ASKED
from aliquot.agent.kubelet_records import CHECKPOINT
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.container_runtime import NvidiaRuntime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.dialects.gpushare import ASSIGNED, CONTAINER, DEV, IDX, POD
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.errors import Refused
from aliquot.model import Pod
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest
from tests.fakes import answer, until
from tests.integration.agent.node import AgentNode

RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
WAY_OUT = "delete the pod, and its controller creates a new one"


def running(node: AgentNode, pod: Pod) -> None:
    node.report(pod, "Running", **RUNNING)


async def test_a_container_finds_its_card_and_its_share_inside(without_cdi: AgentNode) -> None:
    pod = await without_cdi.admitted(gpu_mem=3, card=1)
    environment, devices = await without_cdi.inside(pod)
    assert environment == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-1", IDX: "1", POD: "3", CONTAINER: "3", DEV: "15"}
    assert devices == ["nvidia4"]
    (granted,) = await without_cdi.kubelet.pre_start(pod, "main")
    assert [(device.host_path, device.permissions) for device in granted.devices] == [
        (str(without_cdi.cdi_folder.parent / "dev" / "nvidia4"), "rw")
    ]
    assert not granted.cdi_devices
    assert list(without_cdi.cdi_folder.iterdir()) == []
    (patch,) = without_cdi.patches()
    assert patch["metadata"]["annotations"][ASSIGNED] == "true"


async def test_ten_equal_pods_on_one_card_all_start(alone: AgentNode) -> None:
    pods = [alone.make(f"p{number}", 1, card=1) for number in range(10)]
    alone.show(*pods)
    await alone.admit(*pods)
    inside = [await alone.inside(pod) for pod in pods]
    assert {found[IDX] for found, _ in inside} == {"1"}
    assert [nodes for _, nodes in inside] == [["nvidia4"]] * 10


async def test_ten_equal_pods_on_two_cards_each_find_their_own(without_cdi: AgentNode) -> None:
    """kubelet lists a pod from its admission on, so it is known which of them is asked for."""
    pods = [without_cdi.make(f"p{number}", 3, card=number % 2) for number in range(10)]
    without_cdi.show(*pods)
    await without_cdi.admit(*pods)
    inside = [await without_cdi.start(pod) for pod in pods]
    assert [found[IDX] for found in inside] == [pod.metadata.annotations[IDX] for pod in pods]
    assert Counter(found["NVIDIA_VISIBLE_DEVICES"] for found in inside) == {"GPU-n1-0": 5, "GPU-n1-1": 5}


async def test_of_equal_pods_on_two_cards_the_first_fails_after_a_while_and_the_other_starts(alone: AgentNode) -> None:
    """Nobody tells which of them is asked for."""
    first, second = alone.make("first", card=0), alone.make("second", card=1)
    alone.show(first, second)
    began = alone.clock.monotonic()
    text = await alone.not_admitted(first)
    assert alone.clock.monotonic() - began >= PATIENCE
    assert text == (
        "Allocate failed due to kubelet does not say which of these pods it starts with 3 aliyun.com/gpu-mem, and the "
        "container runtime has no CDI: default/first (placed on GPU-n1-0), default/second (placed on GPU-n1-1), which "
        "is unexpected"
    )
    admitting = asyncio.create_task(alone.admit(second))
    await until(lambda: alone.clock.sleeping, "the agent has not heard that the first has failed")
    alone.report(first, "Failed")
    await admitting
    assert (await alone.start(second))[IDX] == "1"


async def test_equal_containers_whose_pods_hold_different_amounts_are_told_apart_or_fail(alone: AgentNode) -> None:
    """They share a card, but a variable tells what the whole pod holds."""
    two = [container_manifest("main", 3), container_manifest("side", 1)]
    pods = [alone.make("one", card=0), alone.make("two", containers=two, card=0)]
    alone.show(*pods)
    assert "default/one (placed on GPU-n1-0), default/two (placed on GPU-n1-0)" in await alone.not_admitted(pods[0])


async def test_a_placement_that_comes_late_is_waited_for(without_cdi: AgentNode) -> None:
    pod = without_cdi.make(card=None)
    without_cdi.show(pod)
    admitting = asyncio.create_task(without_cdi.admit(pod))
    await until(lambda: without_cdi.clock.sleeping)
    without_cdi.show(without_cdi.placed(pod, 1))
    await admitting
    assert (await without_cdi.start(pod))[IDX] == "1"


async def test_a_pod_without_a_placement_fails_with_the_reason(without_cdi: AgentNode) -> None:
    pod = without_cdi.make(card=None)
    assert "pod default/p is on node n1 without a placement" in await without_cdi.not_admitted(pod)


async def test_many_pods_without_a_placement_hold_up_the_others_for_a_while_only(without_cdi: AgentNode) -> None:
    began = without_cdi.clock.monotonic()
    for number in range(8):
        await without_cdi.not_admitted(without_cdi.make(f"nobody-places-it-{number}", 2, card=None))
    assert without_cdi.clock.monotonic() - began < 7 * PATIENCE
    await without_cdi.start(await without_cdi.admitted("good", card=1))
    await without_cdi.clock.move(120)
    began = without_cdi.clock.monotonic()
    await without_cdi.not_admitted(without_cdi.make("later", 2, card=None))
    assert without_cdi.clock.monotonic() - began >= PATIENCE


async def test_an_equal_pod_that_is_not_placed_yet_may_be_the_one(alone: AgentNode) -> None:
    placed, waits = alone.make("placed", card=0), alone.make("waits", card=None)
    text = await alone.not_admitted(waits)
    assert "default/placed (placed on GPU-n1-0), default/waits (pod default/waits is on node n1 without" in text
    alone.report(waits, "Failed")
    alone.show(placed)
    await alone.admit(placed)
    assert (await alone.start(placed))[IDX] == "0"


async def test_a_call_for_a_pod_that_the_api_server_does_not_show_is_refused(without_cdi: AgentNode) -> None:
    without_cdi.make("other", 4)
    pod = without_cdi.make()
    without_cdi.api.registry.delete(resources.PODS, "default", pod.metadata.name, DeleteRequest(grace_seconds=0))
    assert "no pod of this node waits for 3 aliyun.com/gpu-mem" in await without_cdi.not_admitted(pod)


async def test_an_api_server_that_fails_is_asked_again(without_cdi: AgentNode) -> None:
    pod = without_cdi.make(card=1)
    without_cdi.show(pod)
    without_cdi.api.script("GET", r"/pods\?", answer(403, message="not now"))
    admitting = asyncio.create_task(without_cdi.admit(pod))
    await until(admitting.done, "kubelet has an answer", passing=without_cdi.clock)
    await admitting
    assert (await without_cdi.start(pod))[IDX] == "1"


async def test_a_pod_that_is_being_deleted_holds_up_nobody(alone: AgentNode) -> None:
    going = alone.make("going", card=0, metadata={"finalizers": ["tests/held"]})
    alone.api.registry.delete(resources.PODS, "default", going.metadata.name, DeleteRequest())
    assert alone.api.registry.get(resources.PODS, "default", going.metadata.name).obj["metadata"]["deletionTimestamp"]
    pod = await alone.admitted(card=1)
    assert (await alone.start(pod))[IDX] == "1"


async def test_each_container_of_a_pod_is_answered_for_itself(alone: AgentNode) -> None:
    """kubelet asks for one container after another, and gives ids of an init container to the next one."""
    pod = await alone.admitted(
        containers=[container_manifest("main", 3), container_manifest("side", 1)],
        initContainers=[container_manifest("fetch", 3), container_manifest("watch", 1, restartPolicy="Always")],
        card=1,
    )
    inside = await alone.start_all(pod)
    assert {name: found[CONTAINER] for name, found in inside.items()} == {
        "fetch": "3",
        "watch": "1",
        "main": "3",
        "side": "1",
    }
    assert {found["NVIDIA_VISIBLE_DEVICES"] for found in inside.values()} == {"GPU-n1-1"}
    granted = checkpoint.read(alone.kubelet.folder / CHECKPOINT)
    ids = {grant.container: grant.ids for grant in granted}
    assert ids["fetch"] & ids["main"], "what the embedded kubelet does"


@pytest.mark.parametrize("names", [(GPU_MEM, GPU_COUNT), (GPU_COUNT, GPU_MEM)], ids=["memory first", "count first"])
async def test_a_container_that_asks_for_both_resources_finds_its_devices_once(
    without_cdi: AgentNode, names: tuple[str, ...]
) -> None:
    amounts = {GPU_MEM: "8", GPU_COUNT: "2"}
    limits = {name: amounts[name] for name in names}
    container = container_manifest("main", None, resources={"limits": limits})
    pod = await without_cdi.admitted(containers=[container], card=(0, 1))
    environment, devices = await without_cdi.inside(pod)
    assert (environment[IDX], environment[CONTAINER], environment[ALSO_ASKED]) == ("0,1", "4", GPU_COUNT)
    assert devices == ["nvidia3", "nvidia4"]


# -- PreStart


async def test_a_container_that_is_started_again_keeps_its_card(without_cdi: AgentNode) -> None:
    pod = await without_cdi.admitted(card=1)
    first = await without_cdi.inside(pod)
    running(without_cdi, pod)
    assert await without_cdi.inside(pod) == first


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart of the agent"])
async def test_a_pod_that_got_the_answer_of_another_never_starts(without_cdi: AgentNode, restart: bool) -> None:
    pod = await without_cdi.admitted(card=0)
    without_cdi.show(without_cdi.placed(pod, 1))
    if restart:
        await without_cdi.restart_agent()
    for _ in range(2):
        with pytest.raises(Refused) as refusal:
            await without_cdi.start(pod)
        assert str(refusal.value).endswith(
            "container main of pod default/p is placed on GPU-n1-1 (0 % of cores, 3072 MiB), but Allocate answered "
            f"with GPU-n1-0 (0 % of cores, 3072 MiB): {WAY_OUT}"
        )
    assert without_cdi.patches() == []


async def test_a_restart_of_the_agent_between_allocate_and_prestart_changes_nothing(without_cdi: AgentNode) -> None:
    pod = await without_cdi.admitted(card=1)
    await without_cdi.restart_agent()
    assert (await without_cdi.start(pod))[IDX] == "1"


async def test_a_card_whose_device_node_changed_with_a_reboot_is_not_mistaken(without_cdi: AgentNode) -> None:
    """kubelet would give the container the device node of the other card."""
    pod = await without_cdi.admitted(card=0)
    await without_cdi.start(pod)
    running(without_cdi, pod)
    first, second = without_cdi.cards.gpus
    swapped = (replace(second, index=0, minor=first.minor), replace(first, index=1, minor=second.minor))
    await without_cdi.restart_agent(replace(without_cdi.cards, gpus=swapped))
    text = rf"would get .*/dev/nvidia3, which no longer belongs to its cards: {WAY_OUT}"
    with pytest.raises(Refused, match=text):
        await without_cdi.start(pod)


async def test_a_container_that_names_cards_itself_gets_none(without_cdi: AgentNode) -> None:
    """kubelet adds the pod's own variables after those of the answer."""
    forged = container_manifest("main", 3, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    pod = await without_cdi.admitted(containers=[forged], card=0)
    text = "container main of pod default/p sets NVIDIA_VISIBLE_DEVICES itself, and without a CDI device of ours that"
    with pytest.raises(Refused, match=text):
        await without_cdi.start(pod)
    assert without_cdi.patches() == []


async def test_a_container_that_names_cards_itself_gets_none_though_its_neighbour_has_started(
    without_cdi: AgentNode,
) -> None:
    forged = container_manifest("second", 4, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    pod = await without_cdi.admitted(containers=[container_manifest("main", 3), forged], card=0)
    await without_cdi.kubelet.pre_start(pod, "main")
    with pytest.raises(Refused, match="container second of pod default/p sets NVIDIA_VISIBLE_DEVICES itself"):
        await without_cdi.kubelet.pre_start(pod, "second")


async def test_a_container_that_asks_nvidias_runtime_for_more_than_its_cards_is_refused(without_cdi: AgentNode) -> None:
    """Also if its answer says void, which names no card."""
    folder = without_cdi.cdi_folder.parent
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.1"):
        (folder / "driver/lib64").mkdir(parents=True, exist_ok=True)
        (folder / "driver/lib64" / name).touch()
    runtime = NvidiaRuntime(("nvidia",), is_default=False)
    injection = Injection(ToolkitSpecs([]), DriverFiles("/", str(folder / "driver")), runtime)
    without_cdi.devices = NvidiaDevices(folder / "dev", injection=injection)
    await without_cdi.restart_agent()
    for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS"):
        forged = container_manifest("main", 3, env=[{"name": name, "value": "all"}])
        pod = await without_cdi.admitted(name.lower().replace("_", "-"), containers=[forged], card=0)
        with pytest.raises(Refused, match=f"sets {name} itself"):
            await without_cdi.start(pod)
    assert (await without_cdi.start(await without_cdi.admitted("good", card=0)))["NVIDIA_VISIBLE_DEVICES"] == "void"


def with_runtime(folder: Path, runtime: NvidiaRuntime | None, *, is_complete: bool = True) -> NvidiaDevices:
    """The cards of a node with this runtime of NVIDIA's."""
    injection = Injection(ToolkitSpecs([]), DriverFiles("/", str(folder / "driver")), runtime, is_complete=is_complete)
    return NvidiaDevices(folder / "dev", injection=injection)


DEFAULT = NvidiaRuntime(("nvidia",), is_default=True)
SOURCE = {"configMapRef": {"name": "settings"}}


@pytest.mark.parametrize(
    ("runtime", "is_complete", "prefixes"),
    [
        pytest.param(DEFAULT, True, [""], id="NVIDIA's runtime is the default"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=False), True, [""], id="a pod may choose it"),
        pytest.param(None, False, [""], id="nobody knows whether it is there"),
        pytest.param(DEFAULT, True, ["APP_", "NVIDIA_"], id="a prefix that leads to its variables"),
    ],
)
async def test_a_container_whose_variables_nobody_can_see_gets_no_card_where_they_could_choose_it(
    without_cdi: AgentNode, runtime: NvidiaRuntime | None, prefixes: list[str], *, is_complete: bool
) -> None:
    folder = without_cdi.cdi_folder.parent
    without_cdi.devices = with_runtime(folder, runtime, is_complete=is_complete)
    await without_cdi.restart_agent()
    hidden = container_manifest("main", 3, envFrom=[{**SOURCE, "prefix": prefix} for prefix in prefixes])
    with pytest.raises(
        Refused, match=r"\(envFrom\), which may set .*NVIDIA_VISIBLE_DEVICES.*: enable CDI in .*\(env\)"
    ):
        await without_cdi.start(await without_cdi.admitted(containers=[hidden], card=0))
    assert without_cdi.patches() == []


@pytest.mark.parametrize(
    ("runtime", "prefix"),
    [
        pytest.param(None, "", id="NVIDIA's runtime is not there"),
        pytest.param(replace(DEFAULT, from_environment=False), "", id="it obeys no variables"),
        pytest.param(DEFAULT, "APP_", id="a prefix keeps them apart"),
    ],
)
async def test_a_container_may_take_variables_from_elsewhere_if_they_cannot_choose_its_cards(
    without_cdi: AgentNode, runtime: NvidiaRuntime | None, prefix: str
) -> None:
    without_cdi.devices = with_runtime(without_cdi.cdi_folder.parent, runtime)
    await without_cdi.restart_agent()
    hidden = container_manifest("main", 3, envFrom=[{**SOURCE, "prefix": prefix}])
    assert (await without_cdi.start(await without_cdi.admitted(containers=[hidden], card=0)))[IDX] == "0"


async def test_with_cdi_a_container_may_take_variables_from_elsewhere(node: AgentNode) -> None:
    """The CDI spec's variables win over all of them."""
    node.devices = with_runtime(node.cdi_folder.parent, DEFAULT)
    await node.restart_agent()
    hidden = container_manifest("main", 3, envFrom=[SOURCE])
    assert (await node.start(await node.admitted(containers=[hidden], card=0)))[IDX] == "0"


CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


@pytest.mark.parametrize("runtime", [DEFAULT, None], ids=["the default", "nobody knows whether it is there"])
@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"value": "all"}, id="all"),
        pytest.param({"value": "compute,video"}, id="one more"),
        pytest.param({"value": ""}, id="empty, which old images understand as all"),
        pytest.param({"value": "$(OTHER)"}, id="another variable"),
        pytest.param({"valueFrom": {"configMapKeyRef": {"name": "settings", "key": "x"}}}, id="from elsewhere"),
    ],
)
async def test_a_container_cannot_ask_nvidias_runtime_for_more_of_the_driver(
    without_cdi: AgentNode, runtime: NvidiaRuntime | None, own: dict[str, Any]
) -> None:
    without_cdi.devices = with_runtime(without_cdi.cdi_folder.parent, runtime, is_complete=runtime is not None)
    await without_cdi.restart_agent()
    greedy = container_manifest("main", 3, env=[{"name": CAPABILITIES, **own}])
    with pytest.raises(Refused, match=f"sets {CAPABILITIES} itself to something else than a part of compute,utility"):
        await without_cdi.start(await without_cdi.admitted(containers=[greedy], card=0))
    assert without_cdi.patches() == []


@pytest.mark.parametrize(
    ("runtime", "value"),
    [
        pytest.param(DEFAULT, "utility", id="a part"),
        pytest.param(DEFAULT, "utility, compute", id="all that the node gives"),
        pytest.param(replace(DEFAULT, from_environment=False), "all", id="NVIDIA's runtime obeys no variables"),
        pytest.param(None, "all", id="it is not there"),
    ],
)
async def test_a_container_may_ask_for_what_it_gets_and_for_what_nobody_obeys(
    without_cdi: AgentNode, runtime: NvidiaRuntime | None, value: str
) -> None:
    without_cdi.devices = with_runtime(without_cdi.cdi_folder.parent, runtime)
    await without_cdi.restart_agent()
    modest = container_manifest("main", 3, env=[{"name": CAPABILITIES, "value": value}])
    assert (await without_cdi.start(await without_cdi.admitted(containers=[modest], card=0)))[IDX] == "0"


async def test_a_container_whose_hidden_variables_may_ask_for_more_of_the_driver_gets_no_card(
    without_cdi: AgentNode,
) -> None:
    without_cdi.devices = with_runtime(without_cdi.cdi_folder.parent, DEFAULT)
    await without_cdi.restart_agent()
    hidden = container_manifest("main", 3, envFrom=[{**SOURCE, "prefix": "NVIDIA_DRIVER_"}])
    with pytest.raises(Refused, match=rf"\(envFrom\), which may set {CAPABILITIES}, and"):
        await without_cdi.start(await without_cdi.admitted(containers=[hidden], card=0))


async def test_other_variables_of_a_container_and_of_its_neighbours_are_its_own_business(
    without_cdi: AgentNode,
) -> None:
    main = container_manifest("main", 3, env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute"}])
    side = container_manifest("side", None, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}])
    pod = await without_cdi.admitted(containers=[main, side], card=0)
    assert (await without_cdi.start(pod))[IDX] == "0"


async def test_every_container_of_a_pod_is_checked_for_variables_of_its_own(without_cdi: AgentNode) -> None:
    forged = container_manifest("side", 3, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    pod = await without_cdi.admitted(containers=[container_manifest("main", 3), forged], card=0)
    assert (await without_cdi.start(pod))[IDX] == "0"
    with pytest.raises(Refused, match="container side of pod default/p sets NVIDIA_VISIBLE_DEVICES itself"):
        await without_cdi.start(pod, "side")


async def test_a_container_starts_again_while_the_api_server_is_away(without_cdi: AgentNode) -> None:
    pod = await without_cdi.admitted(card=1)
    await without_cdi.start(pod)
    seen = len(without_cdi.api.seen)
    assert (await without_cdi.start(pod))[IDX] == "1"
    assert len(without_cdi.api.seen) == seen, "nobody was asked"


async def test_a_placement_that_would_over_commit_the_card_is_refused(without_cdi: AgentNode) -> None:
    await without_cdi.start(await without_cdi.admitted("first", 10))
    second = await without_cdi.admitted("second", 10)
    assert "would over-commit this node: card GPU-n1-0 has 5120 MiB" in await without_cdi.refusal(second)


# -- what the agent remembers


async def test_an_agent_started_anew_knows_what_runs_whatever_its_annotations_say(without_cdi: AgentNode) -> None:
    first = await without_cdi.admitted("first", 10, card=0)
    inside = await without_cdi.inside(first)
    before = without_cdi.hand_over.store.of(first.metadata.uid)
    without_cdi.placed(first, 1)
    running(without_cdi, first)
    await without_cdi.restart_agent()
    assert without_cdi.hand_over.store.of(first.metadata.uid) == before
    assert "would over-commit" in await without_cdi.refusal(await without_cdi.admitted("second", 10, card=0))
    assert await without_cdi.inside(first) == inside, "a container that starts again"


async def test_an_init_container_is_not_counted_beside_the_main_container_after_a_restart(
    without_cdi: AgentNode,
) -> None:
    pod = await without_cdi.admitted(gpu_mem=10, initContainers=[container_manifest("fetch", 10)])
    await without_cdi.start_all(pod)
    before = without_cdi.hand_over.store.of(pod.metadata.uid)
    running(without_cdi, pod)
    await without_cdi.restart_agent()
    assert without_cdi.hand_over.store.of(pod.metadata.uid) == before
    assert before is not None
    assert before.holding.charges["GPU-n1-0"].mib == 10240


async def test_a_pod_deleted_by_force_counts_after_a_restart_until_kubelet_has_dropped_it(alone: AgentNode) -> None:
    first = await alone.admitted("first", 10, card=0)
    await alone.start(first)
    running(alone, first)
    alone.delete_by_force(first)
    await alone.restart_agent()
    second = await alone.admitted("second", 10, card=0)
    assert "would over-commit this node" in await alone.refusal(second)
    alone.kubelet.release(first.metadata.uid)
    assert (await alone.start(second))[IDX] == "0"


async def test_a_checkpoint_that_cannot_be_read_is_named(without_cdi: AgentNode) -> None:
    pod = without_cdi.make()
    path = without_cdi.kubelet.folder / CHECKPOINT
    path.write_text("{")
    assert f"kubelet's checkpoint {path} cannot be read" in await without_cdi.not_admitted(pod)


# -- a node that changes its way


async def test_a_pod_from_before_the_runtime_had_cdi_starts_again(without_cdi: AgentNode) -> None:
    pod = await without_cdi.admitted(card=1)
    inside = await without_cdi.inside(pod)
    running(without_cdi, pod)
    without_cdi.with_cdi = True
    await without_cdi.restart_agent()
    assert await without_cdi.inside(pod) == inside
    other = await without_cdi.admitted("other", card=0)
    assert (await without_cdi.inside(other))[1] == ["nvidia3"]
    assert len(list(without_cdi.cdi_folder.iterdir())) == 1


async def test_a_pod_that_was_promised_a_cdi_device_does_not_start_without_it(node: AgentNode) -> None:
    """The runtime would ignore the name, and the container would start without its card."""
    pod = await node.admitted()
    node.with_cdi = False
    await node.restart_agent()
    with pytest.raises(Refused, match="was promised a CDI device, but the agent now runs without CDI: delete the pod"):
        await node.start(pod)

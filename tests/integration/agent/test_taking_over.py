"""A node whose pods got their cards from another device plugin: kubelet's checkpoint keeps that plugin's answers."""

import base64
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.agent.kubelet_records import CHECKPOINT
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.nvidia.container_runtime import NvidiaRuntime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.errors import Refused
from aliquot.kube import Client
from aliquot.model import Pod
from aliquot.model.records import OBSERVED, PLACEMENT, read_observed, write_observed
from tests.factories import container_manifest, minor_of
from tests.fakes import ScriptedApi, answer
from tests.integration.agent.node import AgentNode, runs

DIALECTS = standard_dialects()
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def gave(node: AgentNode, pod: Pod, *answers: wire.ContainerAllocateResponse) -> None:
    """kubelet remembers these answers for the pod's grants, in their order, as another device plugin gave them."""
    path = node.kubelet.folder / CHECKPOINT
    data = msgspec.json.decode(path.read_bytes())
    own = [entry for entry in data["Data"]["PodDeviceEntries"] if entry["PodUID"] == pod.metadata.uid]
    for entry, given in zip(own, answers, strict=True):
        entry["AllocResp"] = base64.b64encode(given.SerializeToString()).decode()
    path.write_bytes(msgspec.json.encode(data))


def visible(value: str) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(envs={VISIBLE: value})


async def adopted(node: AgentNode, pod: Pod, *answers: wire.ContainerAllocateResponse) -> None:
    """The pod runs by another plugin, and our agent starts after it."""
    gave(node, pod, *answers)
    node.show(runs(pod))
    await node.restart_agent()


async def gpushare_pod(node: AgentNode, units: int = 3, card: int = 1) -> Pod:
    """As gpushare leaves it: its annotations, and no record of ours."""
    return node.annotated(await node.admitted("old", units, card=None), **{IDX: str(card)})


@pytest.mark.parametrize("named", ["1", "GPU-n1-1"], ids=["by index", "by UUID"])
async def test_an_adopted_container_starts_again_with_what_the_other_plugin_answered(
    node: AgentNode, named: str
) -> None:
    pod = await gpushare_pod(node)
    await adopted(node, pod, visible(named))
    await node.record_adopted()
    assert node.patches() == [], "gpushare's own annotations name the card"
    await node.kubelet.pre_start(pod, "main")
    assert not list(node.cdi_folder.iterdir()), "kubelet repeats the other plugin's answer: there is nothing to add"


async def test_a_container_that_the_other_plugin_was_asked_for_starts_though_it_never_ran(node: AgentNode) -> None:
    pod = await gpushare_pod(node)
    gave(node, pod, visible("1"))
    node.show(pod)
    await node.kubelet.pre_start(pod, "main")


@pytest.mark.parametrize("rewritten", ["0", ""], ids=["names another card", "is wiped"])
async def test_an_adopted_pod_counts_on_the_card_that_it_has_whatever_becomes_of_its_annotations(
    node: AgentNode, rewritten: str
) -> None:
    pod = await gpushare_pod(node, 10)
    await adopted(node, pod, visible("1"))
    node.show(runs(node.annotated(pod, **{IDX: rewritten})))
    assert "would over-commit this node: card GPU-n1-1" in await node.refusal(await node.admitted("new", 10, card=1))
    assert (await node.start(await node.admitted("other", 10, card=0)))[VISIBLE] == "GPU-n1-0"


async def test_a_pod_whose_annotations_name_another_card_counts_where_it_is_and_does_not_start_again(
    node: AgentNode,
) -> None:
    """gpushare swaps equal pods: the annotation of each names the card of the other."""
    pod = await gpushare_pod(node, 10, card=0)
    await adopted(node, pod, visible("1"))
    with pytest.raises(Refused, match="gave it GPU-n1-1, but its annotations name other cards; delete the pod"):
        await node.kubelet.pre_start(pod, "main")
    assert (await node.start(await node.admitted("free", 10, card=0)))[VISIBLE] == "GPU-n1-0"
    assert "would over-commit" in await node.refusal(await node.admitted("new", 10, card=1))


async def test_a_pod_that_the_other_plugin_gave_no_card_is_told_so(node: AgentNode) -> None:
    """gpushare starts such a container with a name that is no card, so that it fails."""
    pod = await gpushare_pod(node)
    await adopted(node, pod, visible("no-gpu-has-3GiB-to-run"))
    with pytest.raises(Refused, match="gave it no-gpu-has-3GiB-to-run, but its annotations name other cards"):
        await node.kubelet.pre_start(pod, "main")


async def test_an_answer_without_a_card_is_no_reason_to_start(node: AgentNode) -> None:
    pod = await gpushare_pod(node)
    gave(node, pod, wire.ContainerAllocateResponse())
    node.show(pod)
    with pytest.raises(Refused, match=r"served container main before, and gave it no card instead of GPU-n1-1"):
        await node.kubelet.pre_start(pod, "main")


async def test_an_adopted_container_that_names_its_cards_itself_does_not_start_again(node: AgentNode) -> None:
    """Its own variable wins over what the other plugin answered."""
    forged = container_manifest("main", 3, env=[{"name": VISIBLE, "value": "all"}])
    admitted = await node.admitted("old", containers=[forged], card=None)
    await adopted(node, node.annotated(admitted, **{IDX: "1"}), visible("1"))
    with pytest.raises(Refused, match=f"sets {VISIBLE} itself, and without a CDI device of ours that wins"):
        await node.kubelet.pre_start(admitted, "main")


async def test_an_adopted_container_whose_variables_nobody_can_see_does_not_start_again(
    node: AgentNode, folder: Path
) -> None:
    runtime = NvidiaRuntime(("nvidia",), is_default=True)
    node.devices = NvidiaDevices(
        folder / "dev", injection=Injection(ToolkitSpecs([]), DriverFiles("/", str(folder)), runtime)
    )
    hidden = container_manifest("main", 3, envFrom=[{"secretRef": {"name": "settings"}}])
    admitted = await node.admitted("old", containers=[hidden], card=None)
    await adopted(node, node.annotated(admitted, **{IDX: "1"}), visible("1"))
    with pytest.raises(Refused, match=r"takes variables from a ConfigMap or Secret \(envFrom\)"):
        await node.kubelet.pre_start(admitted, "main")


async def test_a_pod_that_our_server_placed_and_the_other_plugin_served_is_adopted(node: AgentNode) -> None:
    """As half way: our record names cards by their index, because the node had no inventory."""
    pod = node.placed(await node.admitted("old", card=None), 1, uuid="n1/1")
    await adopted(node, pod, visible("1"))
    await node.kubelet.pre_start(pod, "main")


class Other(AgentNode):
    """A node that serves another dialect than gpushare."""

    async def pod(self, limits: dict[str, str], **annotations: str) -> Pod:
        container = container_manifest("main", None, resources={"limits": limits})
        return self.annotated(await self.admitted("old", containers=[container], card=None), **annotations)


def other(folder: Path, scripted: ScriptedApi, client: Client, *names: str) -> Other:
    return Other(folder, scripted, client, dialects=[DIALECTS[name] for name in names])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(visible("GPU-n1-1"), id="the variable"),
        pytest.param(
            wire.ContainerAllocateResponse(
                envs={VISIBLE: "void"},
                cdi_devices=[wire.CDIDevice(name="k8s.device-plugin.nvidia.com/gpu=GPU-n1-1")],
            ),
            id="CDI",
        ),
    ],
)
async def test_a_pod_of_nvidia_s_plugin_has_the_card_that_its_answer_names(
    folder: Path, scripted: ScriptedApi, client: Client, given: wire.ContainerAllocateResponse
) -> None:
    async with other(folder, scripted, client, "nvidia", "gpushare") as node:
        pod = await node.pod({"nvidia.com/gpu": "1"})
        await adopted(node, pod, given)
        await node.record_adopted()
        await node.kubelet.pre_start(pod, "main")
        (written,) = (patch["metadata"]["annotations"][OBSERVED] for patch in node.patches())
        assert read_observed(pod.metadata.uid, written) == {"main": ["GPU-n1-1"]}
        node.show(runs(node.annotated(pod, **{OBSERVED: written})))
        await node.kubelet.pre_start(pod, "main")
        assert "would over-commit" in await node.refusal(await node.admitted("new", 3, card=1))
        assert (await node.start(await node.admitted("other", 3, card=0)))[VISIBLE] == "GPU-n1-0"


async def test_a_forged_record_on_an_adopted_pod_is_put_right(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    async with other(folder, scripted, client, "nvidia") as node:
        pod = await node.pod({"nvidia.com/gpu": "1"})
        await adopted(node, pod, visible("GPU-n1-1"))
        forged = write_observed(pod.metadata.uid, {"main": ["GPU-n1-0"]})
        node.show(runs(node.annotated(pod, **{OBSERVED: forged})))
        await node.record_adopted()
        (written,) = (patch["metadata"]["annotations"][OBSERVED] for patch in node.patches())
        node.show(runs(node.annotated(pod, **{OBSERVED: written})))
        await node.record_adopted()
        assert read_observed(pod.metadata.uid, written) == {"main": ["GPU-n1-1"]}
        assert len(node.patches()) == 1, "a true record is left alone"


async def test_a_record_that_cannot_be_written_is_told_once_and_tried_again(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    async with other(folder, scripted, client, "nvidia") as node:
        pod = await node.pod({"nvidia.com/gpu": "1"})
        await adopted(node, pod, visible("GPU-n1-1"))
        faults = [answer(403, message=reason) for reason in ("no", "no", "never")]
        scripted.script("PATCH", "/pods/.*$", *faults)
        with capture_logs() as told:
            for _ in range(len(faults) + 1):
                await node.record_adopted()
        errors = [line["error"] for line in told if line["log_level"] == "warning"]
        assert [error.rpartition(" ")[2] for error in errors] == ["no", "never"]
        assert told[-1]["event"] == "recorded the cards that another device plugin gave to a pod"


def with_nodes(*names: str, **envs: str) -> wire.ContainerAllocateResponse:
    specs = [wire.DeviceSpec(container_path=f"/dev/{name}", host_path=f"/dev/{name}") for name in names]
    return wire.ContainerAllocateResponse(envs=envs, devices=specs)


@pytest.mark.parametrize(
    ("dialect", "limits", "annotations", "answers"),
    [
        pytest.param(
            "tencent",
            {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "4"},
            {"tencent.com/predicate-gpu-idx-0": str(minor_of(1)), "tencent.com/gpu-assigned": "true"},
            [
                with_nodes(f"nvidia{minor_of(1)}", "nvidiactl", NVIDIA_VISIBLE_DEVICES="GPU-n1-1"),
                wire.ContainerAllocateResponse(),
            ],
            id="gpu-manager",
        ),
        pytest.param(
            "elastic",
            {"elastic-gpu/gpu-percent": "20"},
            {"elastic-gpu/assume": "true", "elastic-gpu/container-main": "1"},
            [with_nodes("elastic-gpu-0a1b2c3d", "nvidiactl", NVIDIA_VISIBLE_DEVICES="none", GPU="0a1b2c3d")],
            id="elastic-gpu",
        ),
        pytest.param(
            "hami",
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
            {"hami.io/vgpu-node": "n1", "hami.io/vgpu-devices-allocated": "GPU-n1-1,NVIDIA,3000,0:;"},
            [with_nodes(NVIDIA_VISIBLE_DEVICES="GPU-n1-1", CUDA_DEVICE_MEMORY_LIMIT_0="3000m")],
            id="HAMi",
        ),
    ],
)
async def test_what_each_original_leaves_is_adopted(
    folder: Path,
    scripted: ScriptedApi,
    client: Client,
    dialect: str,
    limits: dict[str, str],
    annotations: dict[str, str],
    answers: Sequence[wire.ContainerAllocateResponse],
) -> None:
    async with other(folder, scripted, client, dialect, "gpushare") as node:
        (folder / "dev" / "elastic-gpu-0a1b2c3d").symlink_to(f"/dev/nvidia{minor_of(1)}")
        pod = await node.pod(limits, **annotations)
        await adopted(node, pod, *answers)
        await node.kubelet.pre_start(pod, "main")
        assert PLACEMENT not in pod.metadata.annotations
        assert "would over-commit" in await node.refusal(await node.admitted("new", 15, card=1))


@pytest.mark.parametrize(
    ("percent", "card", "names", "links"),
    [
        pytest.param(
            "20",
            "1",
            ("elastic-gpu-0a1b2c3d", "elastic-gpuctl-0a1b2c3d", "nvidia-uvm"),
            {"elastic-gpu-0a1b2c3d": f"nvidia{minor_of(1)}", "elastic-gpuctl-0a1b2c3d": "nvidiactl"},
            id="its older versions",
        ),
        pytest.param(
            "200",
            "1,0",
            ("elastic-gpu-0a1b2c3d-0", "elastic-gpu-0a1b2c3d-1"),
            {
                "elastic-gpu-0a1b2c3d-0": f"nvidia{minor_of(1)}",
                "elastic-gpu-0a1b2c3d-1": f"nvidia{minor_of(0)}",
            },
            id="its last version, two cards",
        ),
    ],
)
async def test_the_links_of_elastic_gpu_are_made_again_after_a_reboot(
    folder: Path,
    scripted: ScriptedApi,
    client: Client,
    percent: str,
    card: str,
    names: Sequence[str],
    links: dict[str, str],
) -> None:
    """/dev is empty then, and kubelet repeats an answer that names them."""
    async with other(folder, scripted, client, "elastic") as node:
        annotations = {"elastic-gpu/assume": "true", "elastic-gpu/container-main": card}
        pod = await node.pod({"elastic-gpu/gpu-percent": percent}, **annotations)
        await adopted(node, pod, with_nodes(*names, NVIDIA_VISIBLE_DEVICES="none", GPU="0a1b2c3d"))
        await node.kubelet.pre_start(pod, "main")
        made = {path.name: path.readlink() for path in (folder / "dev").iterdir() if path.is_symlink()}
        assert made == {name: folder / "dev" / target for name, target in links.items()}
        await node.kubelet.pre_start(pod, "main")


async def test_a_link_of_elastic_gpu_to_another_card_is_left_alone(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    async with other(folder, scripted, client, "elastic") as node:
        annotations = {"elastic-gpu/assume": "true", "elastic-gpu/container-main": "1"}
        pod = await node.pod({"elastic-gpu/gpu-percent": "20"}, **annotations)
        gave(node, pod, with_nodes("elastic-gpu-0a1b2c3d", NVIDIA_VISIBLE_DEVICES="none"))
        link = folder / "dev" / "elastic-gpu-0a1b2c3d"
        link.symlink_to(f"/dev/nvidia{minor_of(0)}")
        node.show(pod)
        with pytest.raises(Refused, match="gave it GPU-n1-0"):
            await node.kubelet.pre_start(pod, "main")
        assert link.readlink() == Path(f"/dev/nvidia{minor_of(0)}")

"""What the originals leave behind on a node with running pods: the ids and answers of their device plugins, and their
keys on pods."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rig import Rig
from tests.rig.other_plugin import Answer, Offer

_UNIT_MIB = 1024
_CONTROL = ("nvidiactl", "nvidia-uvm")
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Original:
    """`limits` are those of its one pod. `left` has the keys that its scheduler and its agent leave on the pod, and
    `offers` the resources of its device plugins, for the card at an index."""

    name: str
    dialect: str
    limits: Mapping[str, str]
    offers: Callable[[Rig, int], Sequence[Offer]]
    left: Callable[[Rig, int], Mapping[str, str]] = lambda _rig, _index: {}


def _gpushare(rig: Rig, index: int) -> Sequence[Offer]:
    ids = [f"{gpu.uuid}-_-{unit}" for gpu in rig.nvml.gpus for unit in range(gpu.mib // _UNIT_MIB)]
    units = str(rig.nvml.gpus[0].mib // _UNIT_MIB)
    memory = {"IDX": str(index), "POD": "3", "CONTAINER": "3", "DEV": units}
    envs = {VISIBLE: str(index)} | {f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in memory.items()}
    return [Offer("aliyun.com/gpu-mem", "aliyungpushare.sock", ids, {3: Answer(envs)})]


def _gpushare_keys(rig: Rig, index: int) -> Mapping[str, str]:
    units = str(rig.nvml.gpus[index].mib // _UNIT_MIB)
    keys = {"IDX": str(index), "DEV": units, "POD": "3", "ASSIGNED": "true", "ASSUME_TIME": "1700000000000000000"}
    return {f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in keys.items()}


def _gpu_manager(rig: Rig, index: int) -> Sequence[Offer]:
    gpu, core, memory = rig.nvml.gpus[index], "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
    cores = [f"{core}-{number}" for number in range(100 * len(rig.nvml.gpus))]
    blocks = sum(each.mib // 256 for each in rig.nvml.gpus)
    answer = Answer(
        {VISIBLE: gpu.uuid, "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
        devices=[(f"/dev/{name}", str(rig.dev_folder / name)) for name in (f"nvidia{gpu.minor}", *_CONTROL)],
        mounts=[("/usr/local/nvidia", str(rig.dev_folder))],
        annotations={core: "20", memory: str(8 * 256 * 2**20), "tencent.com/vcuda-device": f"/dev/nvidia{gpu.minor}"},
    )
    return [
        Offer(core, "vcore.sock", cores, {20: answer}, pre_start=True),
        Offer(
            memory, "vmemory.sock", [f"{memory}-268435456-{n}" for n in range(blocks)], {8: Answer()}, pre_start=True
        ),
    ]


def _gpu_manager_keys(rig: Rig, index: int) -> Mapping[str, str]:
    """gpu-manager corrects the numbers that gpu-admission wrote to the minors of its cards."""
    return {
        "tencent.com/predicate-gpu-idx-0": str(rig.nvml.gpus[index].minor),
        "tencent.com/predicate-node": rig.node_name,
        "tencent.com/predicate-time": "1700000000000000000",
        "tencent.com/gpu-assigned": "true",
    }


def _elastic(rig: Rig, index: int) -> Sequence[Offer]:
    """Its agent makes the links before the container starts. They stay when it has gone."""
    ids = [f"nano-{number}-{unit:02d}" for number in range(len(rig.nvml.gpus)) for unit in range(100)]
    short = hashlib.sha256(b"pod").hexdigest()[:8]
    links = {f"elastic-gpu-{short}": f"nvidia{rig.nvml.gpus[index].minor}", f"elastic-gpuctl-{short}": "nvidiactl"}
    for name, target in links.items():
        link = Path(rig.dev_folder / name)
        link.unlink(missing_ok=True)
        link.symlink_to(rig.dev_folder / target)
    devices = [(f"/host/dev/{name}", str(rig.dev_folder / name)) for name in links]
    return [
        Offer(
            "elastic-gpu/gpu-percent",
            "elastic-gpu.sock",
            ids,
            {25: Answer({"GPU": short, VISIBLE: "none", "ku": "25"}, devices)},
            pre_start=True,
        )
    ]


def _elastic_keys(_: Rig, index: int) -> Mapping[str, str]:
    return {"elastic-gpu/assume": "true", "elastic-gpu/container-main": str(index)}


def _nvidia(rig: Rig, _: int) -> Sequence[Offer]:
    """kubelet chooses the card."""
    return [
        Offer("nvidia.com/gpu", "nvidia-gpu.sock", [gpu.uuid for gpu in rig.nvml.gpus], {1: Answer({VISIBLE: "{ids}"})})
    ]


def nvidia_spec(rig: Rig) -> Path:
    """The file of the CDI spec that NVIDIA's plugin writes. It stays when the plugin has gone."""
    return Path(rig.cdi_folder, "k8s.device-plugin.nvidia.com-gpu.json")


def _nvidia_with_cdi(rig: Rig, _: int) -> Sequence[Offer]:
    """As the GPU Operator configures it from 25.10 on: the answer has CDI devices and no variable."""
    kind = "k8s.device-plugin.nvidia.com/gpu"
    nodes = {gpu.uuid: [f"nvidia{gpu.minor}", *_CONTROL] for gpu in rig.nvml.gpus}
    devices = [
        {
            "name": uuid,
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/{name}", "hostPath": str(rig.dev_folder / name)} for name in names]
            },
        }
        for uuid, names in nodes.items()
    ]
    common = {"env": [f"{VISIBLE}=void"]}
    spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, "containerEdits": common}
    part = nvidia_spec(rig).with_suffix(".part")
    part.write_text(json.dumps(spec))
    part.rename(nvidia_spec(rig))
    return [Offer("nvidia.com/gpu", "nvidia-gpu.sock", [*nodes], {1: Answer(cdi_kind=kind)})]


def _hami(rig: Rig, index: int) -> Sequence[Offer]:
    gpu = rig.nvml.gpus[index]
    ids = [f"{each.uuid}-{share}" for each in rig.nvml.gpus for share in range(10)]
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "0"}
    answer = Answer({VISIBLE: gpu.uuid} | limits, mounts=[("/usr/local/vgpu", str(rig.dev_folder))])
    return [Offer("nvidia.com/gpu", "nvidia-gpu.sock", ids, {1: answer})]


def _hami_keys(rig: Rig, index: int) -> Mapping[str, str]:
    devices = f"{rig.nvml.gpus[index].uuid},NVIDIA,3000,0:;"
    return {
        "hami.io/vgpu-node": rig.node_name,
        "hami.io/vgpu-time": "1700000000",
        "hami.io/vgpu-devices-to-allocate": "",
        "hami.io/vgpu-devices-allocated": devices,
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": "1700000000",
    }


NVIDIA = Original("nvidia", "nvidia", {"nvidia.com/gpu": "1"}, _nvidia)
NVIDIA_WITH_CDI = Original("nvidia-with-cdi", "nvidia", {"nvidia.com/gpu": "1"}, _nvidia_with_cdi)
GPUSHARE = Original("gpushare", "gpushare", {"aliyun.com/gpu-mem": "3"}, _gpushare, _gpushare_keys)
GPU_MANAGER = Original(
    "gpu-manager",
    "tencent",
    {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"},
    _gpu_manager,
    _gpu_manager_keys,
)
ELASTIC = Original("elastic", "elastic", {"elastic-gpu/gpu-percent": "25"}, _elastic, _elastic_keys)
HAMI = Original("hami", "hami", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}, _hami, _hami_keys)

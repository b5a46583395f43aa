"""The pods in HAMi's own examples, as data: name, limits of their container, and annotations."""

from collections.abc import Mapping

GPU, MEMORY, PERCENT, CORES = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
CARD, MIB = "NVIDIA A100-SXM4-40GB", 40960
"""The examples fit on cards of this model: they name A100s, and a profile of this size."""

EXAMPLES: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = [
    # examples/nvidia of HAMi 2.10, by file: what each pod asks for
    ("default-use", {GPU: "1", MEMORY: "3000", CORES: "30"}, {}),
    ("default-use-legacy", {GPU: "2"}, {}),
    ("dynamic-mig-example", {GPU: "2", MEMORY: "8000"}, {"nvidia.com/vgpu-mode": "mig"}),
    ("example", {GPU: "1", MEMORY: "3000"}, {}),
    ("mig-example", {"nvidia.com/mig-3g.20gb": "1"}, {}),
    ("specify-card-type-not-use", {GPU: "2"}, {"nvidia.com/nouse-gputype": "1080,2080"}),
    ("specify-card-type-to-use", {GPU: "2"}, {"nvidia.com/use-gputype": "A100,V100"}),
    (
        "specify-scheduling-policy",
        {GPU: "1"},
        {"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"},
    ),
    ("specify-uuid-not-use", {GPU: "2"}, {"nvidia.com/nouse-gpuuuid": "GPU-n2-0"}),
    ("specify-uuid-to-use", {GPU: "1"}, {"nvidia.com/use-gpuuuid": "GPU-n3-6,GPU-n3-7"}),
    ("use-as-normal-1", {GPU: "1"}, {}),
    ("use-as-normal-2", {GPU: "1"}, {}),
    ("use-exclusive-card", {GPU: "2", PERCENT: "100", CORES: "100"}, {}),
    ("use-memory-fraction", {GPU: "2", PERCENT: "50", CORES: "30"}, {}),
    ("use-sharing-card-1", {GPU: "1", PERCENT: "40", CORES: "60"}, {}),
    ("use-sharing-card-2", {GPU: "1", PERCENT: "60", CORES: "40"}, {}),
    ("vllm-cross-vgpu", {GPU: "2", PERCENT: "30", CORES: "30"}, {}),
]
REFUSED = {
    "dynamic-mig-example": "annotation nvidia.com/vgpu-mode: 'mig' is not supported; write hami-core or leave it out.",
}
"""Those that get an answer instead of a card."""

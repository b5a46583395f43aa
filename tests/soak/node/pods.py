"""Pods of every dialect and shape. Each container writes down what it sees when it starts, and ends soon."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.pods import LOOK, LOOKED, pod
from tests.soak.node.looks import FOLDER, file_of

LIVES = (1, 4)
UNTIL_DELETED = 600
ONE_OF_SO_MANY_IS_DELETED = 12
ONE_OF_SO_MANY_FAILS_FIRST = 8
LABEL = {"app": "soak"}


@dataclass(frozen=True)
class Kind:
    """What each container of a pod asks for, and which further containers such a pod may have."""

    limits: Mapping[str, str]
    wishes: Mapping[str, str] = field(default_factory=dict)
    """Annotations."""
    labels: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ("init", "sidecar", "main")
    """All of them ask for the same as the first, but `plain`, which asks for nothing and may be in every pod."""


_NATIVE = {"aliquot.io/cores": "5", "aliquot.io/memory": "500Mi"}
KINDS = [
    Kind({"aliyun.com/gpu-mem": "2"}),
    Kind({"aliyun.com/gpu-mem": "4"}, labels={"aliyun.com/gpu-count": "2"}),
    Kind({"aliyun.com/gpu-count": "1"}, beside=("main",)),
    Kind({"tencent.com/vcuda-core": "10", "tencent.com/vcuda-memory": "6"}, beside=("main",)),
    Kind({"tencent.com/vcuda-core": "200"}, beside=()),
    Kind({"elastic-gpu/gpu-percent": "15"}),
    Kind({"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "1000"}),
    Kind({"elasticgpu.com/gpu-core": "10", "elasticgpu.com/gpu-memory": "1000"}),
    Kind({"nano-gpu/gpu-percent": "15"}),
    Kind({"nano-gpu.io/gpu-core": "10", "nano-gpu.io/gpu-memory": "1"}),
    Kind({"keti.com/mpsgpu": "1"}),
    Kind({"keti.com/mpsgpu": "2"}, beside=("main",)),
    Kind({"nvidia.com/gpu": "1"}, beside=("init",)),
    Kind({"nvidia.com/gpu": "2"}, beside=()),
    Kind({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500", "nvidia.com/gpucores": "10"}),
    Kind({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500"}),
    Kind({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "10", "nvidia.com/gpucores": "5"}, beside=("main",)),
    Kind({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", "nvidia.com/gpucores": "100"}, beside=("init",)),
    Kind({"aliquot.io/gpu": "1"}, {"aliquot.io/cores": "15", "aliquot.io/memory": "1500Mi"}),
    Kind({"aliquot.io/gpu": "2"}, _NATIVE),
    Kind({"aliquot.io/gpu": "1"}, {**_NATIVE, "aliquot.io/together": "true"}, beside=("main",)),
]


@dataclass(frozen=True)
class Planned:
    """A pod to create; some are deleted before they would end."""

    pod: dict[str, Any]
    is_deleted_early: bool

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])


def plan(number: int, chance: random.Random) -> Planned:
    kind, name = chance.choice(KINDS), f"soak-{number}"
    is_deleted_early = chance.randrange(ONE_OF_SO_MANY_IS_DELETED) == 0
    fails_first = chance.randrange(ONE_OF_SO_MANY_FAILS_FIRST) == 0
    seconds = UNTIL_DELETED if is_deleted_early else chance.randint(*LIVES)
    made = pod(name, limits=kind.limits, restartPolicy="OnFailure" if fails_first else "Never")
    made["metadata"] |= {"labels": {**LABEL, **kind.labels}, "annotations": dict(kind.wishes)}
    # A kubelet that restarts when the containers have just ended cannot mount the token again, and never ends the pod.
    made["spec"]["automountServiceAccountToken"] = False
    made["spec"]["volumes"] = [{"name": "looks", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}]
    main = made["spec"]["containers"][0] | _looking(name, "main", seconds, fails_first=fails_first)
    made["spec"]["containers"] = [main]
    match chance.choice(["", "", "", "plain", *kind.beside]):
        case "plain":
            other = {**main, **_looking(name, "plain", seconds), "resources": {}}
            made["spec"]["containers"].append(other)
        case "main":
            made["spec"]["containers"].append({**main, **_looking(name, "other", seconds)})
        case "init":
            made["spec"]["initContainers"] = [{**main, **_looking(name, "before", 0)}]
        case "sidecar":
            sidecar = {**main, **_looking(name, "sidecar", UNTIL_DELETED), "restartPolicy": "Always"}
            made["spec"]["initContainers"] = [sidecar]
    return Planned(made, is_deleted_early)


def _looking(pod_name: str, container: str, seconds: int, *, fails_first: bool = False) -> dict[str, Any]:
    """It sleeps in a child, so that it ends when it is told to."""
    look = f"file=$(mktemp {file_of(pod_name, container)}); {{ {LOOK}; echo {LOOKED}; }} > $file"
    if fails_first:
        look += "; [ $(ls ${file%.*}.* | wc -l) -gt 1 ] || exit 1"
    return {
        "name": container,
        "command": ["sh", "-c", f"trap exit TERM; {look}; sleep {seconds} & wait"],
        "volumeMounts": [{"name": "looks", "mountPath": FOLDER}],
    }

"""Pods of every dialect, of random sizes."""

from random import Random
from typing import Any


def manifest(chance: Random, dialect: str, name: str, namespace: str = "default") -> dict[str, Any]:
    limits, metadata = _SIZES[dialect](chance)
    containers = [_container("main", limits)]
    if chance.random() < 0.2:
        containers.append(_container("side", {}))
    if chance.random() < 0.15 and not metadata and dialect != "tencent":
        containers.append(_container("more", limits))
    inits = [_container("first", limits)] if chance.random() < 0.1 and dialect in ("gpushare", "aliquot") else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "priority": chance.choice((0, 0, 0, 10)),
            "containers": containers,
            **({"initContainers": inits} if inits else {}),
        },
    }


def dialect_of(pod: dict[str, Any]) -> str:
    names = {
        name for container in pod["spec"]["containers"] for name in (container.get("resources") or {}).get("limits", {})
    }
    if names & {"nvidia.com/gpumem", "nvidia.com/gpucores"}:
        return "hami"
    return next((_BY_PREFIX[name.partition("/")[0]] for name in names if name.partition("/")[0] in _BY_PREFIX), "")


_BY_PREFIX = {
    "aliyun.com": "gpushare",
    "tencent.com": "tencent",
    "elasticgpu.io": "elastic",
    "elastic-gpu": "elastic",
    "nvidia.com": "nvidia",
    "aliquot.io": "aliquot",
    "keti.com": "keti",
}


def _container(name: str, limits: dict[str, Any]) -> dict[str, Any]:
    resources = {"resources": {"limits": {key: str(amount) for key, amount in limits.items()}}} if limits else {}
    return {"name": name, "image": "registry.example/app:1", **resources}


def _gpushare(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    match chance.randrange(10):
        case 0:
            return {"aliyun.com/gpu-mem": 2 * chance.randint(1, 7)}, {"labels": {"aliyun.com/gpu-count": "2"}}
        case 1:
            return {"aliyun.com/gpu-count": 1}, {}
        case _:
            return {"aliyun.com/gpu-mem": chance.choice((1, 3, 5, 8, 15))}, {}


def _tencent(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    if chance.random() < 0.2:
        return {"tencent.com/vcuda-core": 100 * chance.choice((1, 1, 2))}, {}
    cores, blocks = chance.choice((10, 30, 50, 80)), chance.choice((4, 16, 30, 60))
    return {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": blocks}, {}


def _elastic(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    match chance.randrange(5):
        case 0:
            return {"elasticgpu.io/gpu-core": 100}, {}
        case 1:
            return {"elastic-gpu/gpu-percent": chance.choice((20, 33, 50))}, {}
    cores, mib = chance.choice((10, 40, 60)), chance.choice((512, 4000, 9000))
    return {"elasticgpu.io/gpu-core": cores, "elasticgpu.io/gpu-memory": mib}, {}


def _nvidia(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"nvidia.com/gpu": chance.choice((1, 1, 1, 2))}, {}


def _hami(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    cores, mib = chance.choice((10, 30, 60)), chance.choice((1000, 5000, 9000))
    return {"nvidia.com/gpu": chance.choice((1, 1, 2)), "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}, {}


def _keti(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"keti.com/mpsgpu": chance.choice((1, 1, 2))}, {}


def _aliquot(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    match chance.randrange(4):
        case 0:
            return {"aliquot.io/gpu": 1}, {}
        case 1:
            sizes = {"aliquot.io/memory": f"{chance.choice((700, 3000, 7680))}Mi"}
        case _:
            cores, mib = chance.choice((5, 25, 50)), chance.choice((1000, 4000, 12000))
            sizes = {"aliquot.io/cores": str(cores), "aliquot.io/memory": f"{mib}Mi"}
    return {"aliquot.io/gpu": chance.choice((1, 1, 1, 2))}, {"annotations": sizes}


_SIZES = {
    "gpushare": _gpushare,
    "tencent": _tencent,
    "elastic": _elastic,
    "nvidia": _nvidia,
    "hami": _hami,
    "keti": _keti,
    "aliquot": _aliquot,
}

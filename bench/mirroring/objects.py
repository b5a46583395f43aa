"""Nodes and pods of a GPU cluster as an API server sends them, with everything that nobody reads."""

from typing import Any

import msgspec

from aliquot.model import Gpu, NodeGpus, Placement, Slice
from aliquot.model.records import INVENTORY, PLACEMENT, write_inventory, write_placement

CARDS = 8
WAITING = "waits"
"""The name of the waiting pod, in namespace default."""
_CARD_MIB = 81920
_UNIT_MIB = 1024
_POD_UNITS = 40
_CREATED = "2026-05-04T12:00:00Z"


def node(number: int, version: int) -> bytes:
    """About 10 KB: labels, an inventory, fifty images, and who wrote which field."""
    name = _node_name(number)
    resources = {
        "aliyun.com/gpu-count": str(CARDS),
        "aliyun.com/gpu-mem": str(CARDS * _CARD_MIB // _UNIT_MIB),
        "cpu": "128",
        "ephemeral-storage": "1843269236Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1056270440Ki",
        "pods": "110",
    }
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "dialect.aliquot.io/gpushare": "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8xlarge",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"region-1{'abc'[number % 3]}",
    }
    annotations = {
        INVENTORY: write_inventory(_cards(name)),
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    conditions = [
        _condition(kind, "False", f"KubeletHas{kind}", f"kubelet has no {kind}")
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    conditions.append(_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    return msgspec.json.encode(
        {
            "metadata": {
                "name": name,
                "uid": _uid(1, number),
                "resourceVersion": str(version),
                "creationTimestamp": _CREATED,
                "labels": labels,
                "annotations": annotations,
                "managedFields": [
                    _managed("kubelet", "Update", {"f:metadata": {"f:labels": _fields(labels)}}),
                    _managed("kubelet", "Update", {"f:status": {"f:allocatable": _fields(resources)}}, "status"),
                    _managed("aliquot", "Update", {"f:metadata": {"f:annotations": _fields(annotations)}}),
                ],
            },
            "spec": {
                "podCIDR": f"10.{number // 256}.{number % 256}.0/24",
                "podCIDRs": [f"10.{number // 256}.{number % 256}.0/24"],
                "providerID": f"cloud:///region-1/{name}",
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": f"172.16.{number // 256}.{number % 256}"},
                    {"type": "Hostname", "address": name},
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": _uid(2, number),
                    "systemUUID": _uid(3, number),
                    "bootID": _uid(4, number),
                    "kernelVersion": "6.8.0-60-generic",
                    "osImage": "Ubuntu 24.04.2 LTS",
                    "containerRuntimeVersion": "containerd://2.1.0",
                    "kubeletVersion": "v1.37.0",
                    "kubeProxyVersion": "",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
                "images": [_image(place) for place in range(25)],
            },
        }
    )


def pod(number: int, nodes: int, version: int, told: int = 0) -> bytes:
    """About 4 KB: a placed pod that runs, with a record of its card; `told` is the how manyth change of it."""
    name, host = f"trainer-{number // 8:05}-{number % 8}", number % nodes
    index = number // nodes % CARDS
    cards = _cards(_node_name(host))
    gpu = cards.gpus[index]
    taken = Slice(gpu.uuid, gpu.index, gpu.minor, 0, _POD_UNITS * _UNIT_MIB)
    labels = {
        "app": f"trainer-{number // 8:05}",
        "app.kubernetes.io/managed-by": "team-tools",
        "controller-revision-hash": "trainer-7b9c5d6f4",
        "team": f"team-{number % 40}",
    }
    annotations = {
        PLACEMENT: write_placement(Placement(cards.node, "gpushare", {"main": (taken,)})),
        "ALIYUN_COM_GPU_MEM_IDX": str(index),
        "ALIYUN_COM_GPU_MEM_DEV": str(_CARD_MIB // _UNIT_MIB),
        "ALIYUN_COM_GPU_MEM_POD": str(_POD_UNITS),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1777896000000000000",
        "example.com/step": str(told),
    }
    return msgspec.json.encode(
        {
            "metadata": {
                "name": name,
                "generateName": "trainer-",
                "namespace": f"team-{number % 40}",
                "uid": _uid(5, number),
                "resourceVersion": str(version),
                "generation": 1,
                "creationTimestamp": _CREATED,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": f"trainer-{number // 8:05}",
                        "uid": _uid(6, number // 8),
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
                "managedFields": [
                    _managed("kube-controller-manager", "Update", _fields_of_pod(labels)),
                    _managed("aliquot", "Update", {"f:metadata": {"f:annotations": _fields(annotations)}}),
                    _managed("kubelet", "Update", _FIELDS_OF_STATUS, "status"),
                ],
            },
            "spec": _spec(_node_name(host)),
            "status": _status(number, host),
        }
    )


def waiting_pod() -> bytes:
    """A pod that no scheduler has bound: it asks for all cards of a node."""
    limits = {"aliyun.com/gpu-count": str(CARDS)}
    return msgspec.json.encode(
        {
            "metadata": {"name": WAITING, "namespace": "default", "uid": _uid(7, 0), "creationTimestamp": _CREATED},
            "spec": {
                "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
                "schedulerName": "default-scheduler",
            },
            "status": {"phase": "Pending"},
        }
    )


def _spec(host: str) -> dict[str, Any]:
    account = {
        "name": "kube-api-access-x7k2p",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {
                    "downwardAPI": {
                        "items": [
                            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        },
    }
    sizes = {"aliyun.com/gpu-mem": str(_POD_UNITS), "cpu": "8", "memory": "64Gi"}
    main = {
        "name": "main",
        "image": "registry.example/team/trainer:2026.05.1",
        "command": ["python", "-m", "trainer"],
        "args": ["--data=/data", "--epochs=90", "--batch=256"],
        "env": [
            {"name": "NCCL_DEBUG", "value": "WARN"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "resources": {"limits": sizes, "requests": sizes},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {
                "name": "kube-api-access-x7k2p",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, account],
        "containers": [main],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": host,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _status(number: int, host: int) -> dict[str, Any]:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED} for kind in kinds
        ],
        "hostIP": f"172.16.{host // 256}.{host % 256}",
        "hostIPs": [{"ip": f"172.16.{host // 256}.{host % 256}"}],
        "podIP": f"10.{host // 256}.{host % 256}.{number % 250}",
        "podIPs": [{"ip": f"10.{host // 256}.{host % 256}.{number % 250}"}],
        "startTime": _CREATED,
        "containerStatuses": [
            {
                "name": "main",
                "state": {"running": {"startedAt": _CREATED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example/team/trainer:2026.05.1",
                "imageID": "registry.example/team/trainer@sha256:" + f"{number:064x}",
                "containerID": "containerd://" + f"{number:064x}",
                "started": True,
            }
        ],
        "qosClass": "Burstable",
    }


def _cards(name: str) -> NodeGpus:
    gpus = (Gpu(f"GPU-{name}-{index}", index, index, "NVIDIA A100-SXM4-80GB", _CARD_MIB) for index in range(CARDS))
    return NodeGpus(name, tuple(gpus), _UNIT_MIB)


def _node_name(number: int) -> str:
    return f"gpu-node-{number:05}"


def _uid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    times = {"lastHeartbeatTime": _CREATED, "lastTransitionTime": _CREATED}
    return {"type": kind, "status": status, **times, "reason": reason, "message": message}


def _image(place: int) -> dict[str, Any]:
    digest = f"{place:064x}"
    names = [f"registry.example/team/image-{place}@sha256:{digest}", f"registry.example/team/image-{place}:2026.05"]
    return {"names": names, "sizeBytes": 12345678 + place}


def _managed(manager: str, operation: str, fields: dict[str, Any], part: str = "") -> dict[str, Any]:
    entry = {"manager": manager, "operation": operation, "apiVersion": "v1", "time": _CREATED}
    return {**entry, "fieldsType": "FieldsV1", "fieldsV1": fields} | ({"subresource": part} if part else {})


def _fields(names: dict[str, str]) -> dict[str, Any]:
    return {".": {}, **{f"f:{name}": {} for name in names}}


def _fields_of_pod(labels: dict[str, str]) -> dict[str, Any]:
    container = _fields(dict.fromkeys(("args", "command", "env", "image", "imagePullPolicy", "name"), ""))
    spec: dict[str, Any] = {
        f"f:{name}": {} for name in ("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName")
    }
    return {
        "f:metadata": {"f:generateName": {}, "f:labels": _fields(labels), "f:ownerReferences": {".": {}}},
        "f:spec": {"f:containers": {'k:{"name":"main"}': container}, **spec},
    }


_FIELDS_OF_STATUS: dict[str, Any] = {
    "f:status": {
        "f:conditions": {f'k:{{"type":"{kind}"}}': {".": {}, "f:status": {}} for kind in ("Ready", "Initialized")},
        "f:containerStatuses": {},
        "f:hostIP": {},
        "f:phase": {},
        "f:podIP": {},
        "f:startTime": {},
    }
}

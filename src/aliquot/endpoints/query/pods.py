"""PodResource, GpuPod and PodGpu: a pod with the cards of each of its containers."""

from aliquot.apiserver.objects import Object
from aliquot.control.inputs.pod_use import PodUse
from aliquot.dialects.card_labels import label_value
from aliquot.endpoints.query.cards import card, held, missing_card, percent
from aliquot.endpoints.query.labels import MODEL, NAMESPACE, NODE, ORIGINAL_NODE, only
from aliquot.ledger import Entry
from aliquot.model import NodeGpus, Pod, Slice
from aliquot.model.bounds import MIB
from aliquot.model.placement import card_of


def name_of(namespace: str, pod: str) -> str:
    """The name of a pod's object at the cluster scope. A namespace has no dot."""
    return f"{namespace}.{pod}"


def pod_spec(pod: Pod, entry: Entry, cards: NodeGpus) -> Object:
    """What a pod holds. containers_device is empty while it is not known which cards these are."""
    containers = [
        {"container_name": name, "device_info": [_device(part, cards) for part in slices]}
        for name, slices in entry.placement.containers.items()
        if slices
    ]
    return {
        "pod_name": pod.metadata.name,
        "pod_namespace": pod.metadata.namespace,
        "node_name": entry.node,
        "containers_device": containers,
    }


def _device(part: Slice, cards: NodeGpus) -> Object:
    gpu = card_of(part, cards)
    known = missing_card(part.uuid, cards.node) if gpu is None else card(gpu, cards.node)
    return {**known, **held(part.charge)}


def pod_status(changed: str, use: PodUse | None) -> Object:
    """`changed` is when the pod's cards last changed."""
    if use is None:
        return {"last_changed_time": changed}
    cores = {} if use.cores is None else {"cores_used": percent(use.cores)}
    memory = {} if use.memory_bytes is None else {"memory_used": use.memory_bytes // MIB}
    return {"last_changed_time": changed, **cores, **memory}


def pod_metadata(pod: Pod, spec: Object) -> Object:
    """The same for every kind of object but for its name and namespace."""
    meta, node = pod.metadata, spec["node_name"]
    model = only(device.get("device_model", "") for each in spec["containers_device"] for device in each["device_info"])
    ours = {NODE: node, ORIGINAL_NODE: node, NAMESPACE: meta.namespace, MODEL: label_value(model)}
    return {
        "uid": meta.uid,
        "creationTimestamp": meta.creation_timestamp,
        "labels": {**meta.labels, **{key: value for key, value in ours.items() if value}},
    }

"""The fields of the query API's objects, for `kubectl explain`."""

from collections.abc import Mapping

from aliquot.apiserver.objects import Object
from aliquot.endpoints.query.resources import GPU_INFOS, GPU_NODES, GPU_PODS, POD_GPUS, POD_RESOURCES, QueryResource


def _text(description: str) -> Object:
    return {"type": "string", "description": description}


def _time(description: str) -> Object:
    return {"type": "string", "format": "date-time", "description": description}


def _number(description: str) -> Object:
    return {"type": "integer", "format": "int64", "description": description}


def _yes_or_no(description: str) -> Object:
    return {"type": "boolean", "description": description}


def _list(description: str, items: Object) -> Object:
    return {"type": "array", "description": description, "items": items}


def _map(description: str, values: Object) -> Object:
    return {"type": "object", "description": description, "additionalProperties": values}


def _fields(description: str, **properties: Object) -> Object:
    return {"type": "object", "description": description, "properties": properties}


_UUID = _text("UUID of a card.")
_CARD = {
    "device_id": _text("UUID of the card."),
    "device_brand": _text("Brand of the card, in NVML's words."),
    "device_model": _text("Model of the card, in NVML's words."),
    "device_busid": _text("PCI bus id of the card."),
    "device_node": _text("Node of the card."),
}
_HELD = {
    "device_cores_held": _number("Percent of the card's cores that is held."),
    "device_memory_held": _number("MiB of the card's memory that are held."),
    "device_slots_held": _number("MPS slots of the card that are held."),
}
_NODES_CARD = _fields(
    "A card of the node.",
    **_CARD,
    device_index=_number("The driver's number of the card."),
    device_memory=_number("MiB of the card."),
    device_health=_text('"True" if the card is healthy, else "False".'),
    device_cordoned=_yes_or_no("Whether the card is closed to new pods."),
    device_profile=_text("Profile of a MIG instance, such as 1g.10gb."),
    **_HELD,
    device_cores_used=_number("Percent of the time in which a program ran on the card."),
    device_memory_used=_number("MiB of the card's memory that programs use."),
)
_NODE = {
    "spec": _fields(
        "The cards of the node, and who holds them.",
        device_node=_text("Name of the node."),
        device_infos=_map("The cards, by UUID.", _NODES_CARD),
        device_models=_map("UUIDs of the cards, by model in lower case.", _list("UUIDs in order.", _UUID)),
        report_time=_time("When the agent last reported."),
        device_busy=_list("UUIDs of the cards on which a pod holds a part, in order.", _UUID),
        device_free=_map(
            "By model, the number of cards on which no pod holds a part and that can be given to a pod.",
            _number("Cards."),
        ),
    ),
    "status": _fields(
        "The health of the node's agent.",
        node_health=_text('"True", "False", or "UnKnow" if the server has not heard from an agent of the node.'),
        node_last_health_time=_text('When the agent last renewed its Lease, or "UnKnow".'),
        node=_text("Name of the node."),
        health=_text("The same as node_health, by the name of version 0.2.0."),
        message=_text("What the health means."),
        last_health_time=_time("When the agent last renewed its Lease."),
        last_transition_time=_time("When the health last changed."),
    ),
}
_POD = {
    "spec": _fields(
        "The cards of the pod.",
        pod_name=_text("Name of the pod."),
        pod_namespace=_text("Namespace of the pod."),
        node_name=_text("Node of the pod."),
        containers_device=_list(
            "The containers that have cards.",
            _fields(
                "A container with its cards.",
                container_name=_text("Name of the container."),
                device_info=_list("Its cards.", _fields("A card, and the container's part of it.", **_CARD, **_HELD)),
            ),
        ),
    ),
    "status": _fields(
        "What the pod uses of its cards.",
        last_changed_time=_time("When the pod's cards last changed."),
        cores_used=_number("Percent of a card that the pod uses, over all its cards."),
        memory_used=_number("MiB that the pod uses, over all its cards."),
    ),
}
_KINDS: Mapping[str, tuple[str, Mapping[str, Object]]] = {
    GPU_INFOS.kind: ("GpuInfo is a node with its cards.", _NODE),
    POD_RESOURCES.kind: ("PodResource is a pod with its cards.", _POD),
    GPU_NODES.kind: ("GpuNode is a node with its cards.", _NODE),
    GPU_PODS.kind: ("GpuPod is a pod with its cards.", _POD),
    POD_GPUS.kind: ("PodGpu is a pod with its cards, in the pod's namespace.", _POD),
}
_TYPE = {
    "apiVersion": _text("Group and version of the object."),
    "kind": _text("Kind of the object."),
}


def name_of(resource: QueryResource) -> str:
    """The name of a kind's schema: domain in reverse, version, kind."""
    domain = ".".join(reversed(resource.group.split(".")))
    return f"{domain}.{resource.version}.{resource.kind}"


def gvk_of(resource: QueryResource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def schemas(resource: QueryResource, reference: str) -> dict[str, Object]:
    """The schemas of an object and of its list, which refers to the first by the prefix `reference`."""
    description, properties = _KINDS[resource.kind]
    gvk, name = gvk_of(resource), name_of(resource)
    metadata = {"type": "object", "description": "Name, labels, and other metadata of the object."}
    items = _list("The objects.", {"$ref": f"{reference}{name}"})
    metadata_of_list = {"type": "object", "description": "Version of the list, and how to continue it."}
    return {
        name: {
            **_fields(description, **_TYPE, metadata=metadata, **properties),
            "x-kubernetes-group-version-kind": [gvk],
        },
        f"{name}List": {
            **_fields(f"{resource.kind}List is a list of these.", **_TYPE, metadata=metadata_of_list, items=items),
            "required": ["items"],
            "x-kubernetes-group-version-kind": [{**gvk, "kind": f"{resource.kind}List"}],
        },
    }

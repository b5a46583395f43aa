"""GpuInfo and GpuNode: a node with its cards. Both have the same fields, those of both versions of the original."""

from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.apiserver.objects import Object
from aliquot.dialects.card_labels import label_value
from aliquot.endpoints.query.cards import card, held, normalised, used
from aliquot.endpoints.query.labels import MODEL, NODE, only
from aliquot.model import Charge, Node, NodeGpus
from aliquot.model.load import NodeLoad

UNKNOWN = "UnKnow"
"""Spelled as the original spells it."""
_HEALTH = {True: "True", False: "False", None: UNKNOWN}
_MESSAGES = {
    True: "the agent renews its Lease",
    False: "the agent has not renewed its Lease",
    None: "no agent has renewed a Lease yet",
}


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a node's agent lives; None if that is unknown. `seen` is when it last renewed its Lease, `since` when the
    health last changed; empty if unknown."""

    lives: bool | None
    seen: str = ""
    since: str = ""


def node_object(
    node: Node, cards: NodeGpus, taken: Mapping[str, Charge], load: NodeLoad | None, health: Health
) -> Object:
    sold = [gpu for gpu in cards.gpus if gpu.uuid not in cards.parents]
    busy = sorted(gpu.uuid for gpu in sold if gpu.uuid in taken)
    models: dict[str, list[str]] = {}
    free: dict[str, int] = {}
    for gpu in sold:
        model = normalised(gpu.model)
        models.setdefault(model, []).append(gpu.uuid)
        free[model] = free.get(model, 0) + (gpu.uuid not in taken and cards.sells(gpu))
    infos = {}
    for gpu in sold:
        measured = load.cards.get(gpu.uuid) if load else None
        infos[gpu.uuid] = {
            **card(gpu, cards.node),
            "device_index": gpu.index,
            "device_memory": gpu.mib,
            "device_health": _HEALTH[gpu.healthy],
            "device_cordoned": gpu.cordoned,
            **({"device_profile": gpu.profile} if gpu.profile else {}),
            **held(taken.get(gpu.uuid, Charge())),
            **used(measured),
        }
    meta = node.metadata
    ours = {NODE: meta.name, MODEL: label_value(only(gpu.model for gpu in sold))}
    return {
        "metadata": {
            "name": meta.name,
            "uid": meta.uid,
            "creationTimestamp": meta.creation_timestamp,
            "labels": {**meta.labels, **{key: value for key, value in ours.items() if value}},
        },
        "spec": {
            "device_node": meta.name,
            "device_infos": infos,
            "device_models": {model: sorted(uuids) for model, uuids in models.items()},
            "report_time": health.seen or meta.creation_timestamp,
            "device_busy": busy,
            "device_free": free,
        },
        "status": {
            "node_health": _HEALTH[health.lives],
            "node_last_health_time": health.seen or UNKNOWN,
            "node": meta.name,
            "health": _HEALTH[health.lives],
            "message": _MESSAGES[health.lives],
            **({"last_health_time": health.seen} if health.seen else {}),
            **({"last_transition_time": health.since} if health.since else {}),
        },
    }

"""What `kubectl get` prints of the query API's objects."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from aliquot.apiserver.ages import age
from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.tables import AGE, NAME, Cells, Column, TableFormat, age_of, name_of

_NONE = "<none>"
_UNKNOWN = "<unknown>"
_COUNT = "integer"


def _node_cells(obj: Object, at: datetime) -> Cells:
    spec, infos = obj["spec"], obj["spec"]["device_infos"]
    memory = sum(info["device_memory"] for info in infos.values())
    memory_held = sum(info["device_memory_held"] for info in infos.values())
    return [
        name_of(obj),
        obj["status"]["node_health"],
        ", ".join(spec["device_models"]) or _NONE,
        len(infos),
        len(spec["device_busy"]),
        sum(spec["device_free"].values()),
        age(obj["status"]["node_last_health_time"], at),
        age_of(obj, at),
        f"{memory_held}/{memory}",
        _total(infos.values(), "device_cores_used", "%"),
        _total(infos.values(), "device_memory_used", "Mi"),
        ", ".join(f"{model}={count}" for model, count in spec["device_free"].items()) or _NONE,
    ]


def _total(infos: Iterable[Mapping[str, int]], field: str, unit: str) -> str:
    known = [info[field] for info in infos if field in info]
    return f"{sum(known)}{unit}" if known else _UNKNOWN


NODES = TableFormat(
    (
        NAME,
        Column("Health", "Whether the node's agent renews its Lease."),
        Column("Models", "The models of its cards."),
        Column("Total", "Cards.", type=_COUNT),
        Column("Busy", "Cards on which a pod holds a part.", type=_COUNT),
        Column("Free", "Cards on which no pod holds a part, and that can be given to a pod.", type=_COUNT),
        Column("Last-Seen", "How long ago the agent last renewed its Lease."),
        AGE,
        Column("Memory-Held", "MiB of its cards that pods hold, of all.", wide=True),
        Column("Cores-Used", "Percent of a card, measured.", wide=True),
        Column("Memory-Used", "Measured.", wide=True),
        Column("Free-Per-Model", "Free cards by model.", wide=True),
    ),
    _node_cells,
)


def _pod_cells(obj: Object) -> tuple[Cells, Cells]:
    """Before the age, and after it."""
    spec, status = obj["spec"], obj["status"]
    devices = [device for each in spec["containers_device"] for device in each["device_info"]]
    before = [
        spec["node_name"],
        len({device["device_id"] for device in devices}),
        ", ".join(dict.fromkeys(device.get("device_model", _UNKNOWN) for device in devices)),
    ]
    containers = (
        f"{each['container_name']}={'+'.join(device['device_id'] for device in each['device_info'])}"
        for each in spec["containers_device"]
    )
    cores, memory = dig(status, "cores_used"), dig(status, "memory_used")
    after = [
        " ".join(containers),
        _UNKNOWN if cores is None else f"{cores}%",
        _UNKNOWN if memory is None else f"{memory}Mi",
    ]
    return before, after


_BEFORE = (
    Column("Node", "The node that it runs on."),
    Column("GPUs", "Cards of which it holds a part.", type=_COUNT),
    Column("Model", "Their models."),
)
_AFTER = (
    Column("Cards", "The cards of each container.", wide=True),
    Column("Cores-Used", "Percent of a card, measured.", wide=True),
    Column("Memory-Used", "Measured.", wide=True),
)


def _pod_row(obj: Object, at: datetime) -> Cells:
    before, after = _pod_cells(obj)
    named = [name_of(obj), text_at(obj, "spec", "pod_namespace"), text_at(obj, "spec", "pod_name")]
    return [*named, *before, age_of(obj, at), *after]


def _tenants_row(obj: Object, at: datetime) -> Cells:
    before, after = _pod_cells(obj)
    return [name_of(obj), *before, age_of(obj, at), *after]


PODS = TableFormat(
    (
        NAME,
        Column("Namespace", "The pod's namespace."),
        Column("Pod", "The pod's name."),
        *_BEFORE,
        AGE,
        *_AFTER,
    ),
    _pod_row,
)
TENANTS_PODS = TableFormat((NAME, *_BEFORE, AGE, *_AFTER), _tenants_row)

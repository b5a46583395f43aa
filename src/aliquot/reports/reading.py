"""Reads a cluster's objects with the caller's own rights. What the caller may not read is left out and named."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from aliquot.dialects.unhealthy import KEY, NAME_PREFIX, NAMESPACE
from aliquot.kube.client import Client
from aliquot.kube.errors import Forbidden, NotFound
from aliquot.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PENDING_PODS,
    PODS,
    ApiResource,
    ConfigMap,
    Event,
    ObjectT,
)
from aliquot.kube.reviews import Action
from aliquot.kube.rights import Right
from aliquot.model.pending_pod import PendingPod
from aliquot.model.records import NODE_LEASES
from aliquot.reports.objects import ClusterObjects, Extra, Missing, QuotaPlace

_Found = TypeVar("_Found")
_UNBOUND = {"fieldSelector": "spec.nodeName="}


READ_NODES = Right(Action("list", "nodes"), "the cards of the cluster, and how full they are")
READ_PODS = Right(Action("list", "pods"), "what pods of other namespaces hold, and so what is free")
READ_LEASES = Right(
    Action("list", "leases", "coordination.k8s.io", namespace=NODE_LEASES),
    "how busy cards and pods are, and silent agents",
)
READ_MARKS = Right(
    Action("list", "configmaps", namespace=NAMESPACE), f"cards marked unhealthy in {NAMESPACE}/{NAME_PREFIX}<node>"
)


def read_quotas(place: QuotaPlace) -> Right:
    return Right(Action("list", "configmaps", namespace=place.namespace, name=place.name), "quotas", ("get",))


def read_events(namespace: str) -> Right:
    return Right(Action("list", "events", namespace=namespace), "what schedulers and kubelet said about pods")


@dataclass
class _Reader:
    client: Client
    namespace: str
    missing: list[Missing] = field(default_factory=list)

    async def all(
        self, resource: ApiResource[ObjectT], right: Right, *, selector: Mapping[str, str] | None = None
    ) -> list[ObjectT] | None:
        """None if the caller may not. Raises KubeError."""
        try:
            return (await self.client.list(resource, namespace=right.action.namespace, selector=selector)).items
        except Forbidden:
            self.missing.append(Missing(right.action.resource, right.without, right.rule()))
            return None
        except NotFound:
            return []


async def read_objects(
    client: Client,
    now: float,
    *,
    namespace: str = "",
    optional: Collection[Extra] = (),
    quotas: QuotaPlace = QuotaPlace(),  # noqa: B008  # a frozen value
) -> ClusterObjects:
    """Nodes, the pods of all namespaces, and what is `optional`. A caller who may not list all pods gets those of
    `namespace`. Raises KubeError, also if the caller may list neither."""
    reader = _Reader(client, namespace)

    def wanted(what: Extra, read: Callable[[], Awaitable[_Found]], none: _Found) -> Awaitable[_Found]:
        return read() if what in optional else _nothing(none)

    nodes, (pods, only), leases, text, marks, events = await asyncio.gather(
        reader.all(NODES, READ_NODES),
        _pods(reader, PODS),
        wanted(Extra.LEASES, lambda: reader.all(LEASES, READ_LEASES), None),
        wanted(Extra.QUOTAS, lambda: _quotas(reader, quotas), None),
        wanted(Extra.MARKS, lambda: _marks(reader), None),
        wanted(Extra.EVENTS, lambda: _events(reader), None),
    )
    none: list[PendingPod] = []
    waiting, _ = await wanted(Extra.WAITING, lambda: _pods(reader, PENDING_PODS, _UNBOUND), (none, ""))
    return ClusterObjects(
        now,
        nodes or [],
        pods,
        leases or [],
        text,
        marks or {},
        events or [],
        waiting,
        only,
        list(dict.fromkeys(reader.missing)),
    )


async def _nothing(none: _Found) -> _Found:
    return none


async def _pods(
    reader: _Reader, resource: ApiResource[ObjectT], selector: Mapping[str, str] | None = None
) -> tuple[list[ObjectT], str]:
    """Pods, and the namespace if they are of one only. Raises Forbidden if the caller may not read even these."""
    pods = await reader.all(resource, READ_PODS, selector=selector)
    if pods is not None:
        return pods, ""
    return (await reader.client.list(resource, namespace=reader.namespace, selector=selector)).items, reader.namespace


async def _events(reader: _Reader) -> list[Event] | None:
    """Of all namespaces if the caller may, else of one."""
    events = await reader.all(EVENTS, read_events(""))
    return events if events is not None else await reader.all(EVENTS, read_events(reader.namespace))


async def _quotas(reader: _Reader, place: QuotaPlace) -> str | None:
    by_name = {"fieldSelector": f"metadata.name={place.name}"}
    maps = await reader.all(CONFIG_MAPS, read_quotas(place), selector=by_name)
    return next(((found.data or {}).get(place.key) for found in maps or ()), None)


async def _marks(reader: _Reader) -> dict[str, str] | None:
    maps: list[ConfigMap] = await reader.all(CONFIG_MAPS, READ_MARKS) or []
    marked = (found for found in maps if found.metadata.name.startswith(NAME_PREFIX))
    return {found.metadata.name.removeprefix(NAME_PREFIX): (found.data or {}).get(KEY, "") for found in marked}

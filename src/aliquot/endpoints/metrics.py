"""/metrics: counters, and the current state of the control plane."""

import asyncio
from collections.abc import Mapping
from fractions import Fraction

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Histogram

import aliquot
from aliquot import metrics
from aliquot.clock import Clock
from aliquot.control import ControlPlane, Role
from aliquot.endpoints import asgi
from aliquot.endpoints.gathering import gather
from aliquot.engine.quotas.quota_map import Measure
from aliquot.model import CORES
from aliquot.model.bounds import MAX_SHOWN_LIMITS, MIB

_UNITS = {Measure.CARDS: Fraction(1), Measure.MEMORY: Fraction(MIB), Measure.CORES: Fraction(1, CORES)}
"""What a quota counts, in cards and bytes."""


def routes(plane: ControlPlane) -> Mapping[tuple[str, str], asgi.Handler]:
    metrics.BUILD.info({"version": aliquot.__version__})

    async def show(_: asgi.Call) -> asgi.Response:
        await read(plane)
        return shown()

    return {("GET", "/metrics"): show}


def shown() -> asgi.Response:
    return asgi.Response(metrics.text(), content_type=CONTENT_TYPE_PLAIN_0_0_4.encode())


def timed(verb: str, handler: asgi.Handler, clock: Clock) -> asgi.Handler:
    """Time a handler's answers by their dialect."""
    seconds: dict[str, Histogram] = {}

    async def answer(call: asgi.Call) -> asgi.Response:
        began = clock.monotonic()
        dialect = ""
        try:
            found = await handler(call)
            dialect = found.dialect
        finally:
            if dialect not in seconds:
                seconds[dialect] = metrics.DECISION_SECONDS.labels(verb, dialect)
            seconds[dialect].observe(clock.monotonic() - began)
        return found

    return answer


async def read(plane: ControlPlane) -> None:
    """Set the gauges to the current state. Other work of the loop goes on meanwhile."""
    _read_server(plane)
    for _ in gather(plane):
        await asyncio.sleep(0)


def _read_server(plane: ControlPlane) -> None:
    role = plane.leadership.role
    for each in Role:
        metrics.ROLE.labels(each.value).set(each is role)
    metrics.EPOCH.set(plane.leadership.epoch)
    metrics.READY.set(not plane.not_ready())
    metrics.SILENT_AGENTS.set(len(plane.heartbeats.silent()))
    metrics.REFUSED_PODS.set(plane.requeuer.waiting)
    _read_quotas(plane)
    for kind, cache in (("nodes", plane.nodes), ("pods", plane.pods)):
        metrics.INFORMER_OBJECTS.labels(kind).set(len(cache.all()))
        metrics.INFORMER_SYNCED.labels(kind).set(not cache.trouble)
        metrics.INFORMER_SILENCE.labels(kind).set(plane.clock.monotonic() - cache.heard_at)


def _read_quotas(plane: ControlPlane) -> None:
    lines = [
        ((line.measure.name.lower(), line.model, namespace), line, _UNITS[line.measure])
        for namespace, line in plane.cluster.quota_lines(MAX_SHOWN_LIMITS)
    ]
    metrics.QUOTA_USED.rows = [(labels, float(line.used * unit)) for labels, line, unit in lines]
    metrics.QUOTA_LIMIT.rows = [(labels, float(line.limit * unit)) for labels, line, unit in lines]
    metrics.QUOTA_HIDDEN.set(plane.cluster.quotas.limits - len(lines))

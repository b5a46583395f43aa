"""The endpoints that a configuration enables."""

from collections.abc import Callable, Mapping

from aliquot import compat
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.endpoints import native
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.elastic import ElasticEndpoint
from aliquot.endpoints.endpoint import Table
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.nvidia import NvidiaEndpoint
from aliquot.endpoints.query.api import QueryApi
from aliquot.endpoints.volcano import volcano_routes
from aliquot.endpoints.volcano_wire import PredicateFormat

_Open = Callable[[ControlPlane, Forwarder | None, compat.Compat], Table]

_ENDPOINTS: Mapping[str, _Open] = {
    AdmissionEndpoint.name: lambda *parts: AdmissionEndpoint(*parts).routes(),
    GpuShareEndpoint.name: lambda *parts: GpuShareEndpoint(*parts).routes(),
    ElasticEndpoint.name: lambda *parts: ElasticEndpoint(*parts).routes(),
    NvidiaEndpoint.name: lambda *parts: NvidiaEndpoint(*parts).routes(),
    native.NAME: native.routes,
}
"""By their names in the configuration and on the Lease."""

_VOLCANO = {"admission": "/scheduler", native.NAME: native.PREFIX}
"""Endpoints that serve Volcano, and the path prefix of its routes."""


def endpoints(
    config: ServerConfig, plane: ControlPlane, forwarder: Forwarder | None, query: QueryApi | None = None
) -> dict[str, tuple[Table, int]]:
    """Routes and port of every enabled endpoint. The nvidia endpoint serves the query API, too."""
    found: dict[str, tuple[Table, int]] = {}
    for name, routes in _ENDPOINTS.items():
        endpoint = getattr(config.endpoints, name)
        if endpoint.enabled:
            quirks = compat.parse(config.compat.get(name, ""))
            if query is None or name not in config.query_api.endpoints:
                table = routes(plane, forwarder, quirks)
            elif config.query_api.verbs:
                table = NvidiaEndpoint(plane, forwarder, quirks, query).routes()
            else:
                table = query.routes()
            found[name] = ({**table, **_volcano(name, config, plane, forwarder)}, endpoint.port)
    return found


def _volcano(endpoint: str, config: ServerConfig, plane: ControlPlane, forwarder: Forwarder | None) -> Table:
    """An endpoint's routes for Volcano, if any."""
    if endpoint not in _VOLCANO:
        return {}
    answers = config.volcano.answers
    answer_format = None if answers == "auto" else PredicateFormat(answers)
    return volcano_routes(plane, endpoint, forwarder, _VOLCANO[endpoint], answer_format)

"""Which doors a configuration opens."""

from collections.abc import Callable, Mapping

from aliquot import compat
from aliquot.config import Configuration
from aliquot.control import ControlPlane
from aliquot.doors import native
from aliquot.doors.admission import AdmissionDoor
from aliquot.doors.door import Table
from aliquot.doors.elastic import ElasticDoor
from aliquot.doors.forwarding import Forwarder
from aliquot.doors.gpushare import GpuShareDoor
from aliquot.doors.nvidia import NvidiaDoor
from aliquot.doors.volcano import volcano_routes
from aliquot.doors.volcano_wire import Shape

_Open = Callable[[ControlPlane, Forwarder | None, compat.Compat], Table]

_DOORS: Mapping[str, _Open] = {
    AdmissionDoor.name: lambda *parts: AdmissionDoor(*parts).routes(),
    GpuShareDoor.name: lambda *parts: GpuShareDoor(*parts).routes(),
    ElasticDoor.name: lambda *parts: ElasticDoor(*parts).routes(),
    NvidiaDoor.name: lambda *parts: NvidiaDoor(*parts).routes(),
    native.NAME: native.routes,
}
"""By the names that they have in the configuration, and on the Lease."""

_VOLCANO = {"admission": "/scheduler", native.NAME: native.PREFIX}
"""Doors at which Volcano is served, and below which path."""


def doors(tree: Configuration, plane: ControlPlane, forwarder: Forwarder | None) -> dict[str, tuple[Table, int]]:
    """Routes and port of every door that is to be open."""
    found: dict[str, tuple[Table, int]] = {}
    for name, routes in _DOORS.items():
        door = getattr(tree.doors, name)
        if door.enabled:
            table = routes(plane, forwarder, compat.parse(tree.compat.get(name, "")))
            found[name] = ({**table, **_volcano(name, tree, plane, forwarder)}, door.port)
    return found


def _volcano(door: str, tree: Configuration, plane: ControlPlane, forwarder: Forwarder | None) -> Table:
    """The verbs that a door has for Volcano, if any."""
    if door not in _VOLCANO:
        return {}
    answers = tree.volcano.answers
    shape = None if answers == "auto" else Shape(answers)
    return volcano_routes(plane, door, forwarder, _VOLCANO[door], shape)

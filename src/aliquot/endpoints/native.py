"""Our own routes: one address for the pods of every dialect, for clusters that use several dialects."""

from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import metrics
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.read_api import ReadApi

NAME = "native"
PREFIX = "/aliquot"


def routes(plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> Table:
    extender = Extender(plane, NAME, forwarder, Wire(every_score=False, compat=compat))
    verbs = extender.routes(PREFIX, filter="filter", prioritize="prioritize", bind="bind", preempt="preempt")
    read = ReadApi(plane, OwnRights(plane.client, plane.clock))
    return {**verbs, **read.routes(), **metrics.routes(plane)}

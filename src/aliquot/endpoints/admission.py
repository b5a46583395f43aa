"""gpu-admission's routes: predicates, which leaves a single node, and the few others that its versions had."""

import numpy as np

import aliquot
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire, unavailable
from aliquot.endpoints.extender import BadCall, read_filter
from aliquot.endpoints.forwarding import Forwarder

_PREFIX = "/scheduler"
_NOT_CHOSEN = "pod {uid} has already been matched to another node"


class AdmissionEndpoint:
    name = "admission"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> None:
        self._cluster = plane.cluster
        wire = Wire(
            binds=False,
            one_node=True,
            blank_maps=True,
            knows_unresolvable=False,
            compat=compat,
            not_chosen=_NOT_CHOSEN,
        )
        self._extender = Extender(plane, self.name, forwarder, wire)

    def routes(self) -> Table:
        return {
            **self._extender.routes(_PREFIX, filter="predicates"),
            ("POST", f"{_PREFIX}/priorities"): asgi.DecisionHandler(self.priorities, unavailable),
            ("GET", "/version"): asgi.OpenHandler(self.version),
            ("GET", "/hello"): asgi.OpenHandler(self.hello),
        }

    async def priorities(self, call: asgi.Call) -> asgi.Response:
        """Prefer nodes without GPUs, so that pods without GPUs leave the others alone."""
        try:
            asked = read_filter(call.body)
        except BadCall as error:
            return asgi.text(str(error), 400)
        if why := self._extender.verbs.out_of_sync():
            return unavailable(why)
        if not asked.names:
            return asgi.json(None)  # Go's empty list
        without = [not self._cluster.cards(name).gpus for name in asked.names]
        return asgi.json(asked.names.scored(np.array(without, np.int64)))

    async def version(self, _: asgi.Call) -> asgi.Response:
        """The version, like the original's `<branch>-<commit>`."""
        return asgi.text(f"aliquot-{aliquot.__version__}")

    async def hello(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("Hello, World!")

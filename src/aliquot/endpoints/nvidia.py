"""nvidia-gpu-scheduler's routes for kube-scheduler: filter, prioritize and preempt by card model."""

from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder

_PREFIX = "/apis/metrics.nvidia.com/v1alpha1/schedule"
_UNKNOWN = asgi.Response(
    b'{"code":404,"msg":"api not found"}\n', 404, headers=((b"x-content-type-options", b"nosniff"),)
)


class NvidiaEndpoint:
    name = "nvidia"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> None:
        wire = Wire(
            binds=False,
            one_node=not compat.every_node,
            blank_maps=True,
            untyped=True,
            names_refused=False,
            compat=compat,
        )
        self._extender = Extender(plane, self.name, forwarder, wire)

    def routes(self) -> Table:
        verbs = self._extender.routes(_PREFIX, filter="filter", prioritize="prioritize", preempt="preempt")
        return {**verbs, asgi.OTHERWISE: asgi.OpenHandler(self.unknown)}

    async def unknown(self, _: asgi.Call) -> asgi.Response:
        return _UNKNOWN

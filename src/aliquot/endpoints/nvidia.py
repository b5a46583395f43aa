"""nvidia-gpu-scheduler's routes for kube-scheduler: filter, prioritize and preempt by card model. As in the original,
they are a part of the query API, if there is one."""

from aliquot.apiserver.statuses import MethodNotAllowed
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.query.api import QueryApi
from aliquot.endpoints.status_answers import status_answer, unavailable

_PREFIX = "/apis/metrics.nvidia.com/v1alpha1/schedule"
_NEWER_PREFIX = "/apis/nvidia-gpu-scheduler/v1/schedule"
"""Of v0.2.0."""
_OTHER_METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE")
_UNKNOWN = asgi.Response(
    b'{"code":404,"msg":"api not found"}\n', 404, headers=((b"x-content-type-options", b"nosniff"),)
)


class NvidiaEndpoint:
    name = "nvidia"

    def __init__(
        self,
        plane: ControlPlane,
        forwarder: Forwarder | None = None,
        compat: Compat = OURS,
        query: QueryApi | None = None,
    ) -> None:
        wire = Wire(
            binds=False,
            one_node=not compat.every_node,
            blank_maps=True,
            untyped=True,
            names_refused=False,
            compat=compat,
        )
        self._query = query
        guard = query.refusal_of_verb if query is not None else None
        self._extender = Extender(plane, self.name, forwarder, wire, guard)

    def routes(self) -> Table:
        if self._query is None:
            return {**self._verbs(_PREFIX), asgi.OTHERWISE: asgi.OpenHandler(self.unknown)}
        verbs = {**self._verbs(_PREFIX), **self._verbs(_NEWER_PREFIX)}
        refusal = asgi.OwnRightsHandler(_not_allowed, unavailable, self._query.refusal_of)
        others: Table = {(method, path): refusal for _, path in verbs for method in _OTHER_METHODS}
        return {**verbs, **others, **self._query.routes()}

    def _verbs(self, prefix: str) -> Table:
        return self._extender.routes(prefix, filter="filter", prioritize="prioritize", preempt="preempt")

    async def unknown(self, _: asgi.Call) -> asgi.Response:
        return _UNKNOWN


async def _not_allowed(_: asgi.Call) -> asgi.Response:
    return status_answer(MethodNotAllowed())

"""/healthz and /readyz: is the process alive, and can callers trust its answers?"""

from collections.abc import Callable, Mapping

from aliquot.control import ControlPlane, Role
from aliquot.endpoints import asgi


def routes(
    plane: ControlPlane, notes: Callable[[], list[str]] = list, endpoint: str = ""
) -> Mapping[tuple[str, str], asgi.Handler]:
    """Health routes. `notes` adds lines for people without changing the status code. An `endpoint` is not ready if
    nobody would answer its calls."""

    async def healthz(_: asgi.Call) -> asgi.Response:
        return asgi.text("ok")

    async def readyz(_: asgi.Call) -> asgi.Response:
        return readiness(plane, notes, endpoint)

    handlers = {"/healthz": asgi.OpenHandler(healthz), "/readyz": asgi.OpenHandler(readyz)}
    # kubelet sends GET, load balancers send HEAD
    return {(method, path): handler for path, handler in handlers.items() for method in ("GET", "HEAD")}


def readiness(plane: ControlPlane, notes: Callable[[], list[str]] = list, endpoint: str = "") -> asgi.Response:
    """The current answer of /readyz."""
    trouble = plane.not_ready() or _unserved(plane, endpoint)
    return asgi.text("\n".join(trouble), 503) if trouble else asgi.text("\n".join(("ok", *plane.notes(), *notes())))


def _unserved(plane: ControlPlane, endpoint: str) -> list[str]:
    """Report an endpoint that the leader does not serve: we forward its calls there."""
    leadership = plane.leadership
    if (
        not endpoint
        or leadership.role is not Role.FOLLOWING
        or not leadership.endpoints
        or endpoint in leadership.endpoints
    ):
        return []
    return [f"the leader {leadership.holder} has no {endpoint} endpoint; enable the same endpoints on every server"]

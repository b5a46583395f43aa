"""/healthz and /readyz: is the process alive, and can its answers be trusted?"""

from collections.abc import Callable, Mapping

from aliquot.control import ControlPlane, Role
from aliquot.endpoints import asgi


def routes(
    plane: ControlPlane, notes: Callable[[], list[str]] = list, endpoint: str = ""
) -> Mapping[tuple[str, str], asgi.Handler]:
    """`notes` are more that people should know; they change nothing of the answer's code. A `endpoint` whose calls
    nobody would answer is not ready."""

    async def healthz(_: asgi.Call) -> asgi.Answer:
        return asgi.text("ok")

    async def readyz(_: asgi.Call) -> asgi.Answer:
        return readiness(plane, notes, endpoint)

    handlers = {"/healthz": asgi.Open(healthz), "/readyz": asgi.Open(readyz)}
    # kubelet asks with GET, load balancers with HEAD
    return {(method, path): handler for path, handler in handlers.items() for method in ("GET", "HEAD")}


def readiness(plane: ControlPlane, notes: Callable[[], list[str]] = list, endpoint: str = "") -> asgi.Answer:
    """What /readyz says now."""
    trouble = plane.not_ready() or _shut(plane, endpoint)
    return asgi.text("\n".join(trouble), 503) if trouble else asgi.text("\n".join(("ok", *plane.notes(), *notes())))


def _shut(plane: ControlPlane, endpoint: str) -> list[str]:
    """Calls are passed on to the holder of the Lease, which may have been told to open other endpoints."""
    leadership = plane.leadership
    if (
        not endpoint
        or leadership.role is not Role.FOLLOWING
        or not leadership.endpoints
        or endpoint in leadership.endpoints
    ):
        return []
    return [
        f"{leadership.holder}, which holds the Lease, has no {endpoint} endpoint: "
        "open the same endpoints on every server"
    ]

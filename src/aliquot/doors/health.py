"""/healthz and /readyz: is the process alive, and can its answers be trusted?"""

from collections.abc import Callable, Mapping

from aliquot.control import ControlPlane
from aliquot.doors import asgi


def routes(plane: ControlPlane, notes: Callable[[], list[str]] = list) -> Mapping[tuple[str, str], asgi.Handler]:
    """`notes` are more that people should know; they change nothing of the answer's code."""

    async def healthz(_: asgi.Call) -> asgi.Answer:
        return asgi.text("ok")

    async def readyz(_: asgi.Call) -> asgi.Answer:
        trouble = plane.not_ready()
        return asgi.text("\n".join(trouble), 503) if trouble else asgi.text("\n".join(("ok", *plane.notes(), *notes())))

    handlers = {"/healthz": asgi.Open(healthz), "/readyz": asgi.Open(readyz)}
    # kubelet asks with GET, load balancers with HEAD
    return {(method, path): handler for path, handler in handlers.items() for method in ("GET", "HEAD")}

"""/healthz and /readyz: is the process alive, and can its answers be trusted?"""

from collections.abc import Mapping

from aliquot.control import ControlPlane
from aliquot.doors import asgi


def routes(plane: ControlPlane) -> Mapping[tuple[str, str], asgi.Handler]:
    async def healthz(_: asgi.Call) -> asgi.Answer:
        return asgi.text("ok")

    async def readyz(_: asgi.Call) -> asgi.Answer:
        trouble = plane.not_ready()
        return asgi.text("\n".join(trouble), 503) if trouble else asgi.text("\n".join(("ok", *plane.notes())))

    return {("GET", "/healthz"): healthz, ("GET", "/readyz"): readyz}

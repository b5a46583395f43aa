"""Answers that depend on no object: health, version, discovery, OpenAPI."""

from aiohttp import web

from aliquot.embedded.api import discovery, openapi
from aliquot.embedded.api.answers import JSON, encode

_HEALTH = ("/healthz", "/livez", "/readyz")


def answer(request: web.Request) -> web.Response | None:
    """The document that the request asks for, None where it asks for something else."""
    path, accept = request.path.rstrip("/"), request.headers.get("Accept", "")
    if path in _HEALTH:
        return web.Response(text="ok")
    if path == "/openapi/v2":
        return _openapi_v2(accept)
    if path.startswith("/openapi/"):
        document = openapi.answer(path)
        return None if document is None else web.Response(body=encode(document), content_type=JSON)
    return _discovery(path, discovery.wants_aggregated(accept))


def _openapi_v2(accept: str) -> web.Response:
    if openapi.PROTOBUF_V2 in accept:
        # asked for with an @, answered with a dot, as the real server does: Go's MIME parser refuses the @
        headers = {"Content-Type": openapi.PROTOBUF_V2.replace("@", ".")}
        return web.Response(body=openapi.EMPTY_PROTOBUF_V2, headers=headers)
    return web.Response(body=encode(openapi.document_v2()), content_type=JSON)


def _discovery(path: str, aggregated: bool) -> web.Response | None:
    document = discovery.answer(path, aggregated=aggregated)
    if document is None:
        return None
    is_aggregated = document.get("kind") == "APIGroupDiscoveryList"
    media = discovery.AGGREGATED if is_aggregated else JSON
    return web.Response(body=encode(document), headers={"Content-Type": media, "Vary": "Accept"})

"""Responses without objects: health, version, discovery, OpenAPI."""

from aiohttp import web

from aliquot.apiserver.answers import encode
from aliquot.apiserver.media import JSON
from aliquot.embedded.api import discovery, openapi

_HEALTH = ("/healthz", "/livez", "/readyz")


def answer(request: web.Request) -> web.Response | None:
    """The requested document, or None for other paths."""
    path = request.path.rstrip("/")
    if path in _HEALTH:
        return web.Response(text="ok")
    document = openapi.answer(path) if path.startswith("/openapi/") else discovery.answer(path)
    return None if document is None else web.Response(body=encode(document), content_type=JSON)

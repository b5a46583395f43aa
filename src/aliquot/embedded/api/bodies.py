"""Request bodies: JSON, YAML or protobuf by media type. Anything else is refused."""

from typing import Any

import msgspec
import yaml
from aiohttp import web

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest, TooLarge, UnsupportedMediaType
from aliquot.embedded.api import protobuf
from aliquot.embedded.api.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

MAX_BYTES = 3 * 1024 * 1024

_JSON = "application/json"
_YAML = "application/yaml"
_OBJECT_TYPES = (_JSON, _YAML, protobuf.MEDIA_TYPE)
_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


async def read_object(request: web.Request) -> Object:
    """The object in the body. Raises BadRequest, TooLarge, UnsupportedMediaType."""
    media = _media_type(request, _OBJECT_TYPES)
    sent = await _bytes(request)
    body = protobuf.decode(sent) if media == protobuf.MEDIA_TYPE else _decoded(sent, is_yaml=media == _YAML)
    if not isinstance(body, dict):
        raise BadRequest("the body of the request must be an object")
    return body


async def read_optional_object(request: web.Request) -> Object:
    return await read_object(request) if request.body_exists and await _bytes(request) else {}


async def read_patch(request: web.Request) -> tuple[str, Any]:
    """The media type of the patch, and the patch."""
    media = _media_type(request, _PATCH_TYPES)
    return media, _decoded(await _bytes(request), is_yaml=False)


def _media_type(request: web.Request, known: tuple[str, ...]) -> str:
    media = request.headers.get("Content-Type", _JSON if _JSON in known else "").partition(";")[0].strip()
    if media not in known:
        listed = ", ".join(known)
        raise UnsupportedMediaType(f"the body of the request was in an unknown format ({media!r}): use {listed}")
    return media


async def _bytes(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge(MAX_BYTES) from error


def _decoded(body: bytes, *, is_yaml: bool) -> Any:
    try:
        if is_yaml:
            return msgspec.to_builtins(yaml.load(body, Loader=yaml.CSafeLoader), str_keys=True)
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, yaml.YAMLError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise BadRequest(f"the body of the request cannot be read: {error}") from error

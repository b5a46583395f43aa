"""What a service account token says about itself. Only the API server checks that it is true."""

import base64
import binascii

import msgspec


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Bound(msgspec.Struct, frozen=True):
    node: _Named = _Named()


class _Claims(msgspec.Struct, frozen=True):
    bound: _Bound = msgspec.field(name="kubernetes.io")


def node_of(token: str) -> str | None:
    """The node that a token is bound to: that of its pod, or a Node of its own. Empty without one. None if this is not
    a token of a service account."""
    try:
        _, payload, _ = token.split(".")
        padding = "=" * (-len(payload) % 4)
        claims = msgspec.json.decode(base64.b64decode(payload + padding, altchars="-_", validate=True), type=_Claims)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        return None
    return claims.bound.node.name

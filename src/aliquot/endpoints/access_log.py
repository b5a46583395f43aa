"""Access log: an `audit` line for each call that changes something, or would have, with its caller and outcome."""

import structlog

from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import CallerKind

_log = structlog.get_logger()

ON_BEHALF_OF = "X-Aliquot-Caller"
"""Header with the original caller of a forwarded call."""
_LONGEST = 200


def log(call: asgi.Call, verb: str, pod: str, node: str, verdict: str, why: str = "") -> None:
    caller = call.caller
    about = {"verb": verb, "pod": pod, "node": node, "verdict": verdict, "caller": caller.name, "address": call.address}
    if caller is not asgi.ANYONE:  # an unauthenticated caller is no replica, though it may use every route
        about["kind"] = ", ".join(sorted(kind.value for kind in caller.kinds))
        if (behind := call.headers.get(ON_BEHALF_OF.lower().encode())) and CallerKind.REPLICA in caller.kinds:
            about["on_behalf_of"] = behind[:_LONGEST].decode("latin-1")
    if why:
        _log.warning("audit", **about, why=why)
    else:
        _log.info("audit", **about)


def introduced(call: asgi.Call) -> str:
    """The caller in a form that is safe in a header to another server."""
    shown = f"{call.caller.name} at {call.address}"[:_LONGEST]
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in shown)

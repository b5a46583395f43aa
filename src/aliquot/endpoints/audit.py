"""One line in the log for each call that changes something, or would have: who asked, and what became of it."""

import structlog

from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import Kind

_log = structlog.get_logger()

ON_BEHALF_OF = "X-Aliquot-Caller"
"""Whose call a replica passes on."""
_LONGEST = 200


def tell(call: asgi.Call, verb: str, pod: str, node: str, verdict: str, why: str = "") -> None:
    caller = call.caller
    about = {"verb": verb, "pod": pod, "node": node, "verdict": verdict, "caller": caller.name, "address": call.address}
    if caller is not asgi.ANYONE:  # who has proved nothing is no replica, though every route is open to it
        about["kind"] = ", ".join(sorted(kind.value for kind in caller.kinds))
        if (behind := call.headers.get(ON_BEHALF_OF.lower().encode())) and Kind.REPLICA in caller.kinds:
            about["on_behalf_of"] = behind[:_LONGEST].decode("latin-1")
    if why:
        _log.warning("audit", **about, why=why)
    else:
        _log.info("audit", **about)


def introduced(call: asgi.Call) -> str:
    """The caller as another server is told of it: what may stand in a header."""
    shown = f"{call.caller.name} at {call.address}"[:_LONGEST]
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in shown)

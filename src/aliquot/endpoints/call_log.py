"""Debug logs of calls: arguments, results and, at high verbosity, whole bodies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import structlog

from aliquot import logs
from aliquot.endpoints import asgi

_log = structlog.get_logger()

_BODIES = 9
"""The klog verbosity at which we log bodies."""
_MAX_NAMES = 20


class _Text:
    """Bytes to decode only if the line is written."""

    __slots__ = ("_bytes",)

    def __init__(self, content: bytes) -> None:
        self._bytes = content

    def __str__(self) -> str:
        return self._bytes.decode(errors="replace")


def with_bodies(verb: str, handler: asgi.Handler) -> asgi.Handler:
    async def answer(call: asgi.Call) -> asgi.Response:
        if not logs.wants_debug():
            return await handler(call)
        _log.debug("request", v=_BODIES, verb=verb, path=call.path, body=_Text(call.body))
        found = await handler(call)
        _log.debug("response", v=_BODIES, verb=verb, status=found.status, body=_Text(found.body))
        return found

    return answer


def log_call(verb: str, pod: str, nodes: Sequence[str], passed: Iterable[object], refused: Mapping[str, str]) -> None:
    """Log the arguments and the result of a call about many nodes in a short line."""
    if logs.wants_debug():
        _log.debug(verb, pod=pod, nodes=len(nodes), passed=_some(passed), refused=dict(Counter(refused.values())))


def log_fault(verb: str, why: str) -> None:
    """Log a call without a decision."""
    _log.debug(verb, fault=why)


def _some(names: Iterable[object]) -> list[str]:
    shown = [str(name) for name in names]
    more = len(shown) - _MAX_NAMES
    return [*shown[:_MAX_NAMES], f"and {more} more"] if more > 0 else shown

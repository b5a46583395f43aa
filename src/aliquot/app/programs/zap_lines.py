"""Log lines of gpushare's extender: JSON with zap's keys, on standard output."""

import logging
import sys
import time
from pathlib import PurePath
from typing import Any

import msgspec
import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder
from structlog.typing import EventDict

from aliquot.logs import Form, drop_verbose

_LEVELS = {"warning": "warn", "critical": "error", "exception": "error"}


def zap_form() -> Form:
    where = CallsiteParameterAdder([CallsiteParameter.PATHNAME, CallsiteParameter.LINENO])
    factory = structlog.PrintLoggerFactory(file=sys.stdout)
    return Form((drop_verbose, where), _render, factory, logging.StreamHandler(sys.stdout))


def _render(_: Any, __: str, event: EventDict) -> str:
    level = str(event.pop("level", "info"))
    path = PurePath(str(event.pop("pathname", "")))
    line = {
        "level": _LEVELS.get(level, level),
        "ts": time.time(),
        "caller": f"{path.parent.name}/{path.name}:{event.pop('lineno', 0)}",
        "msg": event.pop("event"),
    }
    event.pop("timestamp", None)
    return msgspec.json.encode({**line, **event}, enc_hook=str).decode()

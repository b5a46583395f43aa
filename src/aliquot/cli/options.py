"""Click options and parameter types that several commands share."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
TIME_EXAMPLE = "2026-01-31T12:10:00Z"

CONTEXT: dict[str, Any] = {
    "auto_envvar_prefix": "ALIQUOT",
    "show_default": True,
    "max_content_width": 110,
    "help_option_names": ["-h", "--help"],
}
"""The context settings of every command."""


def option(*names: str, **how: Any) -> Callable[[_Command], _Command]:
    """An option whose help also shows its environment variable."""
    return click.option(*names, show_envvar=True, **how)


class NamespaceName(click.ParamType[str]):
    name = "namespace"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _LABEL.fullmatch(value):
            rule = "lowercase letters, digits and -, at most 63 characters"
            self.fail(f"{value!r} is not a valid namespace name: {rule}", param, ctx)
        return value


class Timestamp(click.ParamType[datetime]):
    """A time as log lines have it: with a date, and Z or an offset."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            self.fail(f"{value!r} is not a time; write it like {TIME_EXAMPLE}", param, ctx)
        return found

"""Points in time as people write them."""

from datetime import datetime

import click

EXAMPLE = "2026-01-31T12:10:00Z"


class Time(click.ParamType[datetime]):
    """As in a log line: with a date, and with Z or an offset at its end."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            self.fail(f"{value!r} is no point in time; write it as {EXAMPLE}", param, ctx)
        return found

"""Ages as kubectl shows them: `5s`, `3m20s`, `2h5m`, `4d`."""

from datetime import datetime

from aliquot.apiserver.objects import moment_of

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400

# (below this many seconds, large unit and its letter, small unit and its letter or None)
_STEPS: tuple[tuple[int, int, str, int | None, str], ...] = (
    (2 * _MINUTE, 1, "s", None, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", None, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", None, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", None, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def age(since: str, at: datetime) -> str:
    """The age of a timestamp; `<unknown>` without one."""
    moment = moment_of(since)
    return UNKNOWN if moment is None else human((at - moment).total_seconds())


def human(seconds: float) -> str:
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    for below, large, letter, small, small_letter in _STEPS:
        if whole < below:
            rest = whole % large // small if small else 0
            return f"{whole // large}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{whole // _YEAR}y"

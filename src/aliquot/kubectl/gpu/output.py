"""How results look: aligned columns, with colours and bars on a terminal; or JSON or YAML."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aliquot.kubectl.terminal import COMMANDS

if TYPE_CHECKING:
    from aliquot.reports.report import Report, Use

_CODES = {"red": "31", "yellow": "33", "green": "32", "cyan": "36", "dim": "2", "bold": "1"}
_GAP = "   "
_BAR = 8
_FULL, _EMPTY = "█", "░"
_NONE = "-"
_BUSY, _FULL_SHARE = 0.7, 0.95
_UNSAFE = re.compile(rf"(?!\x1b\[(?:0|{'|'.join(_CODES.values())})m){COMMANDS}")
"""What commands the terminal, but for our colours."""


class Cell(NamedTuple):
    text: str
    color: str = ""
    bar: float | None = None
    """A share from 0 to 1 that a terminal also shows as a bar."""


class Style:
    def __init__(self, options: argparse.Namespace) -> None:
        is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ
        self.colors = options.color == "always" or (options.color == "auto" and is_terminal)
        self.headers = not options.no_headers

    def painted(self, text: str, color: str) -> str:
        return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if self.colors and color else text

    def shown(self, cell: Cell) -> str:
        text = cell.text.replace("\n", " ")
        return f"{bar(cell.bar)} {text}" if self.colors and cell.bar is not None else text


def bar(share: float) -> str:
    filled = min(_BAR, max(0, round(share * _BAR)))
    return _FULL * filled + _EMPTY * (_BAR - filled)


def share_color(share: float) -> str:
    return "red" if share >= _FULL_SHARE else "yellow" if share >= _BUSY else "green"


def table(titles: Sequence[str], rows: Iterable[Sequence[Cell]], style: Style) -> str:
    """Columns as kubectl prints them. Empty cells show as `-`."""
    heads = [[Cell(title) for title in titles]] if style.headers else []
    shown = [[(style.shown(cell) or _NONE, cell.color) for cell in row] for row in (*heads, *rows)]
    widths = [max(len(text) for text, _ in column) for column in zip(*shown, strict=True)]
    return "".join(f"{_joined(row, widths, style)}\n" for row in shown)


def _joined(row: Sequence[tuple[str, str]], widths: Sequence[int], style: Style) -> str:
    cells = [
        style.painted(text, color) + " " * (width - len(text)) for (text, color), width in zip(row, widths, strict=True)
    ]
    return _GAP.join(cells).rstrip()


def write(text: str) -> None:
    """Print. Messages, events and dumps may have anything in them, so the terminal gets no commands."""
    sys.stdout.write(_UNSAFE.sub("?", text))


def print_report(report: "Report", form: str) -> None:
    """As json or yaml, which write control characters as escapes of their own."""
    import msgspec

    if form == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
        return
    import yaml

    sys.stdout.write(yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False, allow_unicode=True))


def say(text: str) -> None:
    """A remark beside the result."""
    sys.stderr.write(_UNSAFE.sub("?", f"{text}\n"))


def gib(mib: float) -> str:
    return f"{mib / 1024:.1f}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def age(seconds: float) -> str:
    """As kubectl shows it, roughly: 45s, 12m, 5h, 3d."""
    for unit, size, most in (("s", 1, 120), ("m", 60, 120 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            return f"{max(0, int(seconds // size))}{unit}"
    return f"{int(seconds // 86400)}d"


def show(report: "Report", options: argparse.Namespace, text: Callable[[Style], str]) -> None:
    """Print a report in the form that the options ask for; as a `text` unless it is json or yaml."""
    if options.output in ("json", "yaml"):
        print_report(report, options.output)
    else:
        write(text(Style(options)))


def busy(use: "Use", cards: int = 1) -> Cell:
    """How busy cards are on average; `~` marks an estimate."""
    if use.cores is None or not cards:
        return Cell("")
    return Cell(f"{'~' if use.estimated else ''}{percent(use.cores / cards)}")


def used_memory(use: "Use") -> Cell:
    return Cell("" if use.memory_bytes is None else gib(use.memory_bytes / 2**20))


def watts(use: "Use") -> Cell:
    return Cell("" if use.watts is None else f"{use.watts:.0f}")

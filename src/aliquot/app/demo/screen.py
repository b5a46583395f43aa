"""The demo's live picture: every card with what is taken of it and by whom, what waits and why, and the latest events.

It fits the terminal: a small one gets fewer columns, one row for a node in place of one for a card, and fewer lines
below.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aliquot.app.demo import board
from aliquot.app.demo.board import Card
from aliquot.app.demo.world import World
from aliquot.model import CORES, Charge

_REDRAW_SECONDS = 0.5
_WIDE, _MEDIUM = 96, 72
_MAX_WAITING, _MAX_NEWS = 5, 7
_FRAME_LINES = 4
"""Title, table header, a blank line and the last line."""
_LEFT_OUT = re.compile(r"^(NVIDIA|Tesla) |-SXM\d| HBM\d")
"""Of a model's name."""
_GAP = 2
_LAST_LINE = "Ctrl-C ends it  kubectl --kubeconfig {}  * the real agent, the others are simulated"
_COLUMNS = {
    "node": "node",
    "serves": "serves",
    "GPU": "card",
    "memory GiB": "memory",
    "cores": "cores",
    "busy": "busy",
    "pods": "pods",
}
"""Titles, and the names of what stands below them in a `_Row`."""


async def live(world: World) -> None:
    """Redraw until cancelled."""
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        while not world.life.done():
            screen.update(picture(world, console.width, console.height - 1), refresh=True)
            await asyncio.wait({world.life}, timeout=_REDRAW_SECONDS)
    await world.life


def picture(world: World, width: int, height: int) -> Group:
    """At most `height` lines of `width` columns."""
    waits = board.waiting(world)
    cards = list(board.cards(world))
    rows = [_card_row(card, width) for card in cards]
    room = max(1, height - _FRAME_LINES - 1)
    if len(rows) > room:
        rows = [_node_row(list(own), width) for _, own in groupby(cards, lambda card: card.node)]
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    hidden = len(rows) - len(shown)
    left = height - _FRAME_LINES - len(shown) - bool(hidden)
    waiting_lines = max(1, min(_MAX_WAITING, len(waits), left))
    parts: list[RenderableType] = [_title(world), _table(shown, width)]
    if hidden:
        parts.append(_one_line(Text(f"… and {hidden} more nodes", style="dim")))
    parts += [Text(), *_waiting(waits, waiting_lines)]
    news = min(_MAX_NEWS, left - waiting_lines - 1)
    if news > 0:
        parts += [Text(), *_news(world, news)]
    parts.append(_one_line(Text(_LAST_LINE.format(world.kubeconfig), style="dim")))
    return Group(*parts)


def _title(world: World) -> Text:
    phases = [board.phase(pod) for pod in world.plane.pods.all()]
    cards = sum(len(machine.models) for machine in world.machines.values())
    text = Text.assemble(
        ("aliquot demo  ", "bold"),
        f"{len(world.machines)} nodes, {cards} cards (simulated)  ",
        (f"{phases.count('Running')} run  ", "green"),
        (f"{phases.count('Pending')} wait  ", "yellow"),
        f"{phases.count('Succeeded')} done  {phases.count('Failed')} failed",
    )
    return _one_line(text)


# -- cards


@dataclass(frozen=True)
class _Row:
    node: str
    serves: str
    card: str
    memory: Text
    cores: Text
    busy: Text
    pods: str


def _table(rows: Sequence[_Row], width: int) -> Table:
    """Every column as wide as it must be; the last one gets what is left."""
    hidden = set() if width >= _WIDE else {"busy"} if width >= _MEDIUM else {"busy", "serves", "GPU"}
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    left, shown = width, []
    for title, name in _COLUMNS.items():
        if title not in hidden and left > _GAP:
            widest = max((cell_len(str(getattr(row, name))) for row in rows), default=0)
            own = left if name == "pods" else min(left, max(widest, len(title)))
            table.add_column(title, no_wrap=True, overflow="ellipsis", width=own)
            shown.append(name)
            left -= own + _GAP
    for row in rows:
        table.add_row(*(getattr(row, name) for name in shown))
    return table


def _card_row(card: Card, width: int) -> _Row:
    model = _LEFT_OUT.sub("", card.gpu.model)
    return _Row(
        card.node if card.gpu.index == 0 else "",
        card.serves if card.gpu.index == 0 else "",
        f"{card.gpu.index} {model}",
        _memory(card.used.mib, card.gpu.mib, width),
        _cores(card.used, card.gpu.slots, 1, width),
        _percent(card.busy),
        " ".join(card.pods),
    )


def _node_row(cards: Sequence[Card], width: int) -> _Row:
    used = sum((card.used for card in cards), Charge())
    pods = sorted({pod for card in cards for pod in card.pods})
    return _Row(
        cards[0].node,
        cards[0].serves,
        f"{len(cards)} card{'s' if len(cards) > 1 else ''}",
        _memory(used.mib, sum(card.gpu.mib for card in cards), width),
        _cores(used, sum(card.gpu.slots for card in cards), len(cards), width),
        _percent(sum(card.busy for card in cards) // len(cards)),
        " ".join(pods),
    )


def _memory(used: int, total: int, width: int) -> Text:
    numbers = f" {board.size(used)}/{board.size(total)}"
    return _bar(used, total, 10 if width >= _MEDIUM else 5, "cyan").append(numbers)


def _cores(used: Charge, slots: int, cards: int, width: int) -> Text:
    length = 6 if width >= _MEDIUM else 3
    if used.slots:
        return _bar(used.slots, slots, length, "magenta").append(f" {used.slots}/{slots} MPS")
    if used.shares and not used.cores:
        return Text("shared", style="dim")
    return _bar(used.cores, CORES * cards, length, "magenta").append(f" {used.cores // cards}%")


def _bar(used: int, total: int, length: int, style: str) -> Text:
    """Rounded down, so that only a full card looks full; a used one never looks empty."""
    filled = min(length, length * used // total) if total else 0
    filled = max(filled, 1) if used else 0
    return Text.assemble(("█" * filled, style), ("░" * (length - filled), "dim"))


def _percent(busy: int) -> Text:
    return Text(f"{busy:3}%", style="green" if busy else "dim")


# -- below the cards


def _waiting(waits: Sequence[tuple[str, list[str]]], lines: int) -> list[Text]:
    if not waits:
        return [Text("nothing waits", style="dim")]
    shown = waits if len(waits) <= lines else waits[: max(1, lines - 1)]
    texts = [_one_line(Text.assemble(("waits  ", "yellow"), (f"{_some(pods)}  ", "bold"), why)) for why, pods in shown]
    more = sum(len(pods) for _, pods in waits[len(shown) :])
    return texts + ([Text(f"… and {more} more wait", style="yellow")] if more and len(shown) < lines else [])


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _news(world: World, lines: int) -> list[Text]:
    return [
        _one_line(
            Text.assemble(
                (f"{line.time}  ", "dim"),
                (f"{line.about}  ", "bold"),
                (f"{line.reason}  ", "yellow" if line.is_warning else "green"),
                (line.message, "dim"),
            )
        )
        for line in world.news.latest(lines)
    ]


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text

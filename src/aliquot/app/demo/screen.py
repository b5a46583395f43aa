"""The demo's live screen: every card and the pods that hold it, the pods that wait and why, and the latest events.

The screen fits the terminal. A small terminal gets fewer columns, one row per node instead of one per card, and fewer
lines below the table.
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

from aliquot.app.demo import overview
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.overview import CardUsage
from aliquot.model import CORES, Charge

_REDRAW_SECONDS = 0.5
_WIDE, _MEDIUM = 96, 72
_MAX_WAITING, _MAX_EVENTS = 5, 7
_FRAME_LINES = 4
"""Title, table header, a blank line and the last line."""
_OMITTED = re.compile(r"^(NVIDIA|Tesla) |-SXM\d| HBM\d")
"""Parts of a model's name that the screen omits."""
_GAP = 2
_LAST_LINE = "Ctrl-C ends the demo  kubectl --kubeconfig {}  * real agent"
_OTHERS = ", other nodes are simulated"
_COLUMNS = {
    "node": "node",
    "serves": "serves",
    "GPU": "card",
    "memory GiB": "memory",
    "cores": "cores",
    "busy": "busy",
    "pods": "pods",
}
"""Column titles, and the field of `_Row` that each column shows."""


async def live(demo: DemoCluster) -> None:
    """Redraw until cancelled."""
    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
        while not demo.life.done():
            screen.update(picture(demo, console.width, console.height - 1), refresh=True)
            await asyncio.wait({demo.life}, timeout=_REDRAW_SECONDS)
    await demo.life


def picture(demo: DemoCluster, width: int, height: int) -> Group:
    """The screen: at most `height` lines of `width` columns."""
    waits = overview.waiting(demo)
    cards = list(overview.cards(demo))
    firsts = {card.node: card for card in reversed(cards)}
    rows = [_card_row(card, width, is_first=card is firsts[card.node]) for card in cards]
    room = max(1, height - _FRAME_LINES - 1)
    if len(rows) > room:
        rows = [_node_row(list(own), width) for _, own in groupby(cards, lambda card: card.node)]
    shown = rows if len(rows) <= room else rows[: max(1, room - 1)]
    hidden = len(rows) - len(shown)
    left = height - _FRAME_LINES - len(shown) - bool(hidden)
    waiting_lines = max(1, min(_MAX_WAITING, len(waits), left))
    parts: list[RenderableType] = [_title(demo), _table(shown, width)]
    if hidden:
        parts.append(_one_line(Text(f"… and {hidden} more nodes", style="dim")))
    parts += [Text(), *_waiting(waits, waiting_lines)]
    events = min(_MAX_EVENTS, left - waiting_lines - 1)
    if events > 0:
        parts += [Text(), *_events(demo, events)]
    others = "" if all(machine.has_agent for machine in demo.machines.values()) else _OTHERS
    parts.append(_one_line(Text(_LAST_LINE.format(demo.kubeconfig) + others, style="dim")))
    return Group(*parts)


def _title(demo: DemoCluster) -> Text:
    phases = [overview.phase(pod) for pod in demo.plane.pods.all()]
    cards = sum(len(machine.models) for machine in demo.machines.values())
    text = Text.assemble(
        ("aliquot demo  ", "bold"),
        f"{len(demo.machines)} nodes, {cards} cards (simulated)  ",
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
    """Each column is as wide as its content; the last column gets the rest of the line."""
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


def _card_row(card: CardUsage, width: int, *, is_first: bool) -> _Row:
    what = f"MIG {card.gpu.profile}" if card.gpu.profile else _OMITTED.sub("", card.gpu.model)
    return _Row(
        card.node if is_first else "",
        card.serves if is_first else "",
        f"{card.gpu.index} {what}",
        _memory(card.used.mib, card.gpu.mib, width),
        _cores(card.used, card.gpu.slots, 1, width) if card.gpu.healthy else Text("failed", style="red"),
        _percent(card.busy),
        " ".join(card.pods),
    )


def _node_row(cards: Sequence[CardUsage], width: int) -> _Row:
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
    numbers = f" {overview.size(used)}/{overview.size(total)}"
    return _bar(used, total, 10 if width >= _MEDIUM else 5, "cyan").append(numbers)


def _cores(used: Charge, slots: int, cards: int, width: int) -> Text:
    length = 6 if width >= _MEDIUM else 3
    if used.slots:
        return _bar(used.slots, slots, length, "magenta").append(f" {used.slots}/{slots} MPS")
    if used.shares and not used.cores:
        return Text("shared", style="dim")
    return _bar(used.cores, CORES * cards, length, "magenta").append(f" {used.cores // cards}%")


def _bar(used: int, total: int, length: int, style: str) -> Text:
    """Rounded down, so that only a full card looks full. A used card never looks empty."""
    filled = min(length, length * used // total) if total else 0
    filled = max(filled, 1) if used else 0
    return Text.assemble(("█" * filled, style), ("░" * (length - filled), "dim"))


def _percent(busy: int) -> Text:
    return Text(f"{busy:3}%", style="green" if busy else "dim")


# -- below the cards


def _waiting(waits: Sequence[tuple[str, list[str]]], lines: int) -> list[Text]:
    if not waits:
        return [Text("no pod waits", style="dim")]
    shown = waits if len(waits) <= lines else waits[: max(1, lines - 1)]
    texts = [_one_line(Text.assemble(("waits  ", "yellow"), (f"{_some(pods)}  ", "bold"), why)) for why, pods in shown]
    more = sum(len(pods) for _, pods in waits[len(shown) :])
    return texts + ([Text(f"… and {more} more wait", style="yellow")] if more and len(shown) < lines else [])


def _some(names: Sequence[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _events(demo: DemoCluster, lines: int) -> list[Text]:
    return [
        _one_line(
            Text.assemble(
                (f"{line.time}  ", "dim"),
                (f"{line.about}  ", "bold"),
                (f"{line.reason}  ", "yellow" if line.is_warning else "green"),
                (line.message, "dim"),
            )
        )
        for line in demo.events.latest(lines)
    ]


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text

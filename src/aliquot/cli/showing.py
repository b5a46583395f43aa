"""What the demo shows: where to connect, which pod holds which part, and what waits."""

import asyncio
from collections.abc import Iterator, Sequence

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aliquot.cli.world import World
from aliquot.ledger import Entry
from aliquot.model import Pod

_HEADER = ("POD", "DIALECT", "STATUS", "NODE", "GPU (simulated)", "CORES", "MEMORY")
_BAR = 16
_NAMES = 4


def welcome(world: World, *, stays: bool) -> None:
    click.echo("An embedded cluster with simulated GPUs; Aliquot's own parts are real.")
    if not stays:
        click.echo("It ends when every sample pod runs; with --stay, or on a terminal, it stays open for you to try.\n")
        return
    kubectl = f"kubectl --kubeconfig {world.kubeconfig}"
    inspect = f"http://127.0.0.1:{world.door.port}/gpushare-scheduler/inspect"
    click.echo(
        f"  kubeconfig   {world.kubeconfig}\n"
        f"  API server   {world.cluster.url}\n"
        f"  gpushare     {inspect}\n"
        "Try, in another terminal:\n"
        f"  {kubectl} get nodes,pods -A -o wide\n"
        f"  {kubectl} describe pod binpack-1\n"
        f"  {kubectl} get pods -w\n"
        f"  {kubectl} logs binpack-1\n"
        f"  {kubectl} create -f examples/gpushare-waits.yaml\n"
        f"  {kubectl} delete pod binpack-1\n"
        f"  curl {inspect}\n"
    )


def table(world: World) -> None:
    """The pods and what they hold, in plain columns."""
    rows = [_HEADER, *_rows(world)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def waiting(world: World) -> list[str]:
    """Which pods do not run, and why, as far as their status tells: a line for each reason."""
    why: dict[str, list[str]] = {}
    for pod in sorted(world.plane.pods.all(), key=lambda pod: pod.key):
        if pod.status.phase != "Running":
            why.setdefault(f"{pod.status.phase or 'Pending'}: {_why(pod)}", []).append(pod.key)
    return [f"{_some(keys)} {text}" for text, keys in why.items()]


def _some(names: list[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


async def live(world: World) -> None:
    """Redraw until cancelled."""
    with Live(console=Console(), auto_refresh=False) as screen:
        while not world.life.done():
            screen.update(picture(world), refresh=True)
            await asyncio.wait({world.life}, timeout=0.5)
    await world.life


def picture(world: World) -> Group:
    """Every card with what is taken from it and by whom, and what waits."""
    cards = Table()
    for name in ("node", "GPU", "model", "memory", "pods"):
        cards.add_column(name)
    for row in _cards(world):
        cards.add_row(*row)
    lines = [Text(f"waiting: {line}") for line in waiting(world)] or [Text("nothing waits")]
    hint = Text("Ctrl-C ends the demo and removes everything.", style="dim")
    return Group(cards, *lines, hint)


def _cards(world: World) -> Iterator[Sequence[str]]:
    for node in sorted(world.nodes):
        cards = world.plane.books.cards(node)
        used = world.plane.books.ledger.used(node)
        for gpu in cards.gpus:
            mib = used[gpu.uuid].mib if gpu.uuid in used else 0
            filled = min(_BAR, _BAR * mib // gpu.mib)  # rounded down: only a full card looks full
            bar = "█" * filled + "░" * (_BAR - filled)
            holders = [entry for entry in world.plane.books.ledger.entries(node) if gpu.uuid in entry.charges]
            yield node, str(gpu.index), gpu.model, f"{bar} {mib}/{gpu.mib} MiB", _some(_names(world, holders))


def _names(world: World, entries: list[Entry]) -> list[str]:
    pods = (world.plane.pod_by_uid(entry.uid) for entry in entries)
    return sorted(pod.key for pod in pods if pod is not None)


def _rows(world: World) -> Iterator[tuple[str, ...]]:
    for pod in sorted(world.plane.pods.all(), key=lambda pod: pod.key):
        node = pod.spec.node_name
        entry = world.plane.books.ledger.entry(pod.metadata.uid, node) if node else None
        if entry is None:
            yield pod.key, "", pod.status.phase, node, "", "", _why(pod)
            continue
        for uuid, charge in entry.charges.items():
            cores = f"{charge.cores}%" if charge.cores else "shared"
            card = _card(world, node, uuid)
            yield pod.key, entry.placement.dialect, pod.status.phase, node, card, cores, f"{charge.mib} MiB"


def _card(world: World, node: str, uuid: str) -> str:
    gpu = world.plane.books.cards(node).by_uuid.get(uuid)
    return f"{gpu.index}: {gpu.model}, {uuid}" if gpu else f"{uuid} (gone)"


def _why(pod: Pod) -> str:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or ""
    for status in pod.status.container_statuses or ():
        if status.state.waiting is not None and status.state.waiting.message:
            return status.state.waiting.message
    return "starting" if pod.spec.node_name else "not placed yet"

"""Runs what the options ask for, and prints it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from aliquot.app.simulate.checks import check_options
from aliquot.app.simulate.options import OutputOptions, RunOptions, SourceOptions
from aliquot.app.simulate.sources import read_orders, read_world
from aliquot.dialects import Dialect
from aliquot.simulate.changes import Change, parsed_growth, parsed_nodes
from aliquot.simulate.many import Heard, Runner, Task
from aliquot.simulate.plots import check_plots, draw
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.results import RunResult, as_plain
from aliquot.simulate.returnable import Returnable, returnable
from aliquot.simulate.scenario import Scene
from aliquot.simulate.tables import legend, per_model, returning, summary

_WIDTH_IN_A_PIPE = 1000
_SHOWN_LEFT_OUT = 10


def simulate(source: SourceOptions, how: RunOptions, output: OutputOptions) -> None:
    """Raises BadInput, and KubeError."""
    check_options(source, how)
    named = [how.policy or Dialect.node_policy] if how.compare is None else how.compare.split(",")
    policies = list(dict.fromkeys(map(parsed_policy, named)))
    changes: list[Change] = [*map(parsed_nodes, how.add_nodes), *map(parsed_growth, how.grow)]
    check_plots(output.plots)
    world = read_world(source, _tell)
    orders = read_orders(source, world)
    scenes = [Scene(world, orders), *(change.apply(world, orders) for change in changes)]
    tasks = [
        Task(policy, how.know_workload, scene, order)
        for policy in policies
        for scene in range(len(scenes))
        for order in range(len(orders))
    ]
    found: list[Returnable] = []
    with Runner(scenes, how.jobs) as runner, _progress(shown=output.progress) as count:
        runs = runner.run(tasks, count(len(tasks)))
        for policy in policies if how.returnable else ():
            places = [place for place, task in enumerate(tasks) if task.policy == policy]
            own = [tasks[place] for place in places]
            found += returnable(runner, world, own, [runs[place] for place in places], count(None))
    _print(runs, found, output)
    for path in output.plots:
        draw(runs, path)


def _tell(left_out: Sequence[str]) -> None:
    for line in left_out[:_SHOWN_LEFT_OUT]:
        click.echo(f"left out: {line}", err=True)
    if (more := len(left_out) - _SHOWN_LEFT_OUT) > 0:
        click.echo(f"left out: {more} more", err=True)


def _print(runs: Sequence[RunResult], found: Sequence[Returnable], output: OutputOptions) -> None:
    if output.json:
        plain = {"runs": list(map(as_plain, runs)), **({"returnable": found} if found else {})}
        click.echo(msgspec.json.format(msgspec.json.encode(plain)).decode())
        return
    explained = legend(runs)
    tables = (summary(runs), per_model(runs), *((returning(found),) if found else ()))
    if sys.stdout.isatty():
        console = Console(highlight=False)
        console.print(*(part for table in tables for part in (table, "")), explained, sep="\n")
    else:
        click.echo("\n".join((*map(_as_text, tables), explained)))


def _as_text(table: Table) -> str:
    """Plain, and as wide as it needs to be."""
    console = Console(width=_WIDTH_IN_A_PIPE, no_color=True, highlight=False, file=StringIO())
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int | None], Heard]]:
    """Bars on stderr; yields a function that opens one for so many runs, or for a number that nobody knows."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as bars:

        def count(total: int | None) -> Heard:
            bar = bars.add_task("runs" if total else "runs with fewer nodes", total=total)
            return lambda _: bars.advance(bar)

        yield count

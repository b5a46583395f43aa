"""Runs what the options ask for, and prints it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aliquot.app.simulate.options import OutputOptions, RunOptions, SourceOptions
from aliquot.app.simulate.sources import read_orders, read_world
from aliquot.simulate.many import Task, run_all
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.results import RunResult
from aliquot.simulate.tables import per_model, summary

_WIDTH_IN_A_PIPE = 160


def simulate(source: SourceOptions, how: RunOptions, output: OutputOptions) -> None:
    """Raises BadInput."""
    policies = [parsed_policy(name) for name in how.policies]
    world = read_world(source)
    orders = read_orders(source, world)
    tasks = [Task(order, policy, how.know_workload) for policy in policies for order in orders]
    with _progress(len(tasks), shown=output.progress) as done:
        runs = run_all(world, tasks, how.jobs, done)
    _print(runs, output)


def _print(runs: Sequence[RunResult], output: OutputOptions) -> None:
    if output.json:
        click.echo(msgspec.json.format(msgspec.json.encode({"runs": runs})).decode())
        return
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE)
    console.print(summary(runs))
    console.print(per_model(runs))


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[RunResult], None]]:
    """A bar on stderr."""
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda _: bar.advance(task)

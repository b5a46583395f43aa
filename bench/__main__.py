"""Runs the benchmarks of this folder: a table for people, then one line of JSON for programs."""

from importlib import import_module
from pathlib import Path

import click
import msgspec

from bench.measuring import Row

_RATIO = "ratio = peer / ours, so above 1 ours is faster"


def names() -> list[str]:
    """Every benchmark: a module of this folder that is neither the runner nor what it measures with."""
    helpers = {"__init__", "__main__", "measuring"}
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in helpers)


@click.command()
@click.option("--only", type=click.Choice(names()), help="Run one benchmark.")
@click.option("--quick", is_flag=True, help="Smaller sizes where a benchmark has them: shows that it works, no more.")
def main(only: str | None, quick: bool) -> None:
    """Run every benchmark, or one. Fails if a limit is exceeded."""
    broken: list[str] = []
    for name in [only] if only else names():
        module = import_module(f"bench.{name}")
        rows: list[Row] = list(module.run(quick=True) if quick and hasattr(module, "QUICK") else module.run())
        _show(name, getattr(module, "RATIO", _RATIO), module.PEER, rows)
        click.echo(msgspec.json.encode({"bench": name, "rows": rows}))
        broken += exceeded(name, rows)
    if broken:
        raise click.ClickException("above the limit: " + "; ".join(broken))


def exceeded(name: str, rows: list[Row]) -> list[str]:
    """The limits that were exceeded, in words."""
    above = (row for row in rows if row.is_limit and row.ours > row.peer)
    return [f"{name}: {row.case}: {row.ours:.3f} {row.unit}, limit {row.peer:g}" for row in above]


def _show(name: str, ratio: str, peer: str, rows: list[Row]) -> None:
    click.echo(f"\n{name}: {ratio}\npeer: {peer}")
    table = [("case", "ours", "peer", "ratio", "spread", "unit")]
    table += [
        (row.case, f"{row.ours:.3f}", f"{row.peer:.3f}", f"{row.ratio:.2f}", _spread(row), row.unit) for row in rows
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for line in table:
        click.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _spread(row: Row) -> str:
    return "-".join(f"{end:.2f}" for end in row.spread) if row.spread else ""


if __name__ == "__main__":
    main()

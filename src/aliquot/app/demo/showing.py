"""What the demo says in plain text: where to connect, what to try, and the table of its samples."""

import click

from aliquot.app.demo import board
from aliquot.app.demo.world import World

_HEADER = ("POD", "DIALECT", "NODE", "GPUS (simulated)", "CORES", "MEMORY", "HAND-OVER")


def welcome(world: World, *, stays: bool) -> None:
    agents = sum(machine.has_agent for machine in world.machines.values())
    click.echo(f"  {len(world.machines)} nodes are ready, {agents} of them with the real agent.")
    kubectl = f"kubectl --kubeconfig {world.kubeconfig}"
    inspect = f"http://127.0.0.1:{world.endpoint.port}/gpushare-scheduler/inspect"
    click.echo(
        f"  kubeconfig   {world.kubeconfig}\n  API server   {world.cluster.url}\n  gpushare     {inspect}\n", nl=False
    )
    if not stays:
        click.echo("It ends when every sample runs; with --stay, or on a terminal, it stays open for you to try.\n")
        return
    click.echo(
        "Try, in another terminal:\n"
        f"  {kubectl} get nodes,pods -A -o wide\n"
        f"  {kubectl} describe pod binpack-1\n"
        f"  {kubectl} get pods -w\n"
        f"  {kubectl} logs binpack-1\n"
        f"  {kubectl} apply -f examples/gpushare-waits.yaml\n"
        f"  {kubectl} apply -f examples/demo-script.yaml\n"
        f"  {kubectl} annotate pod binpack-1 --overwrite aliquot.io/placement={{}}   # refused: it would be forged\n"
        f"  {kubectl} delete pod binpack-1\n"
        f"  curl {inspect}\n"
    )


def table(world: World) -> None:
    """Every sample and what it holds, in plain columns."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for sample in world.samples:
        pod = sample.pod_among(world.plane.pods.all())
        if pod is not None:
            held = board.held(world, pod)
            rows.append((held.pod, held.dialect, held.node, held.gpus, held.cores, held.memory, held.hand_over))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def missing(world: World) -> str:
    """Which samples do not run, and why."""
    texts = []
    for sample in world.samples:
        pods = world.plane.pods.all()
        pod = sample.pod_among(pods)
        if not sample.runs_among(pods):
            why = "it is not there" if pod is None else f"{board.phase(pod)}, {board.why(pod)}"
            texts.append(f"{sample.name} ({sample.dialect.name}): {why}")
    return "; ".join(texts)

"""The demo's plain text: where to connect, what to try, and the table of samples."""

import click

from aliquot.app.demo import overview
from aliquot.app.demo.cluster import DemoCluster

_HEADER = ("POD", "DIALECT", "NODE", "GPUS (simulated)", "CORES", "MEMORY", "HAND-OVER")


def welcome(demo: DemoCluster, *, stays: bool) -> None:
    agents = sum(machine.has_agent for machine in demo.machines.values())
    click.echo(f"  {len(demo.machines)} nodes are ready, {agents} of them with the real agent.")
    kubectl = f"kubectl --kubeconfig {demo.kubeconfig}"
    inspect = f"http://127.0.0.1:{demo.endpoint.port}/gpushare-scheduler/inspect"
    click.echo(
        f"  kubeconfig   {demo.kubeconfig}\n  API server   {demo.cluster.url}\n  gpushare     {inspect}\n", nl=False
    )
    if not stays:
        click.echo("The demo ends when every sample runs. Use --stay, or a terminal, to keep it open.\n")
        return
    click.echo(
        "Try, in another terminal:\n"
        f"  {kubectl} get nodes,pods -A -o wide\n"
        f"  {kubectl} describe pod binpack-1\n"
        f"  {kubectl} get pods -w\n"
        f"  {kubectl} logs binpack-1\n"
        f"  {kubectl} apply -f examples/gpushare-waits.yaml\n"
        f"  {kubectl} apply -f examples/demo-script.yaml\n"
        f"  {kubectl} annotate pod binpack-1 --overwrite aliquot.io/placement={{}}   "
        "# refused: only Aliquot's accounts write placements\n"
        f"  {kubectl} delete pod binpack-1\n"
        f"  .venv/bin/kubectl-gpu nodes --kubeconfig {demo.kubeconfig}\n"
        f"  .venv/bin/kubectl-gpu explain binpack-1 --kubeconfig {demo.kubeconfig}\n"
        f"  curl {inspect}\n"
    )


def table(demo: DemoCluster) -> None:
    """Print every sample and what it holds, in columns."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for sample in demo.samples:
        pod = sample.pod_among(demo.plane.pods.all())
        if pod is not None:
            usage = overview.pod_usage(demo, pod)
            rows.append((usage.pod, usage.dialect, usage.node, usage.gpus, usage.cores, usage.memory, usage.hand_over))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def missing(demo: DemoCluster) -> str:
    """The samples that do not run, each with the reason."""
    texts = []
    for sample in demo.samples:
        pods = demo.plane.pods.all()
        pod = sample.pod_among(pods)
        if not sample.runs_among(pods):
            why = "its pod does not exist" if pod is None else f"{overview.phase(pod)}, {overview.why(pod)}"
            texts.append(f"{sample.name} ({sample.dialect.name}): {why}")
    return "; ".join(texts)

"""What the command line asks of a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SourceOptions:
    """Where the cluster and the pods come from, and in which order pods arrive."""

    openb: Path | None = None
    pod_list: str = "default"
    nodes: Path | None = None
    pods: Path | None = None
    arrivals: Sequence[Path] = ()
    order: str = ""
    seeds: str = ""
    arrived: float = 130.0
    departures: str = ""


@dataclass(frozen=True)
class RunOptions:
    """`policies` are names or pairs of names, as `parsed_policy` reads them."""

    policies: Sequence[str]
    know_workload: bool = False
    jobs: int = 1


@dataclass(frozen=True)
class OutputOptions:
    json: bool = False
    plots: Sequence[Path] = ()
    progress: bool = False

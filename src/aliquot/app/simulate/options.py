"""What the command line asks of a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LISTED, SHUFFLED, PUBLISHED = "listed", "shuffled", "published"
"""Orders of arrival."""
TIMES = "times"
"""Departures at the times in the list."""


@dataclass(frozen=True)
class SourceOptions:
    """Where the cluster and the pods come from, and in which order pods arrive."""

    openb: Path | None = None
    pod_list: str = ""
    nodes: Path | None = None
    pods: Path | None = None
    from_cluster: bool = False
    kubeconfig: str = ""
    context: str = ""
    decision_log: Path | None = None
    keep_bound: bool = False
    arrivals: Sequence[Path] = ()
    order: str = ""
    seeds: str = ""
    arrived: float | None = None
    departures: str = ""

    @property
    def named_order(self) -> str:
        return self.order or (PUBLISHED if self.openb else LISTED)


@dataclass(frozen=True)
class RunOptions:
    """`compare`, `add_nodes` and `grow` are as the command line has them; their parsers say how they are written.
    `compare` names policies in place of `policy`."""

    policy: str = ""
    compare: str | None = None
    know_workload: bool = False
    jobs: int = 1
    add_nodes: Sequence[str] = ()
    grow: Sequence[str] = ()
    returnable: bool = False


@dataclass(frozen=True)
class OutputOptions:
    json: bool = False
    plots: Sequence[Path] = ()
    progress: bool = False

"""Volcano's schedulers, one of each shape in which they want their answers; compiled when a test first asks."""

import os
from pathlib import Path

from tests.rig import programs
from tests.rig.golang import Progress
from tests.rig.programs import Source

CURRENT = "1.14.1"
OLDER = ("1.8.2", "1.7.0")
SCHEDULER = "vc-scheduler"
CRDS = "crds"


def versions() -> list[str]:
    """Those to test with; the older ones only where `VOLCANO=all` asks for them: each takes minutes to compile."""
    return [CURRENT, *(OLDER if os.environ.get("VOLCANO") == "all" else ())]


def find(version: str, progress: Progress) -> Path:
    """A folder with the scheduler and its custom resource definitions."""
    return programs.compiled(
        Source(
            name=f"volcano-{version}",
            module="volcano.sh/volcano",
            programs={SCHEDULER: "/cmd/scheduler"},
            fits=lambda _: False,
            keeps={CRDS: "config/crd/bases" if version == "1.7.0" else "config/crd/volcano/bases"},
        ),
        progress,
    )

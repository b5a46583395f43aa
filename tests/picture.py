"""Draws docs/demo.svg, the README's picture, from a real run of the demo with its stream of jobs."""

import asyncio
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from aliquot import logs
from aliquot.app.demo import overview, samples, screen
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.workload import Workload

_WIDTH, _HEIGHT = 110, 40
_SECONDS = 300
_ENOUGH_RUN, _ENOUGH_WAIT = 15, 2
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich asks a web host for its font; any monospace font of the reader's machine will do."""
_TARGET = Path(__file__).parent.parent / "docs" / "demo.svg"


async def _draw() -> None:
    with tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        async with DemoCluster(Path(folder)) as demo, asyncio.timeout(_SECONDS):
            await samples.create(demo.client, demo.samples)
            await demo.until(lambda: samples.all_run(demo.samples, demo.plane.pods.all()))
            stream = asyncio.create_task(Workload(demo.client, demo.plane, demo.samples).run())
            await demo.until(lambda: _is_worth_seeing(demo))
            stream.cancel()
            console = Console(record=True, width=_WIDTH, height=_HEIGHT, file=io.StringIO())
            console.print(screen.picture(demo, _WIDTH, _HEIGHT))
            drawn = console.export_svg(title="aliquot demo", theme=MONOKAI)
            _TARGET.write_text(_WEB_FONT.sub("", drawn))


def _is_worth_seeing(demo: DemoCluster) -> bool:
    phases = [overview.phase(pod) for pod in demo.plane.pods.all()]
    waiting = [why for why, _ in overview.waiting(demo) if "nodes are available" in why]
    busy = phases.count("Running") >= _ENOUGH_RUN and "Succeeded" in phases
    return busy and len(waiting) >= _ENOUGH_WAIT


if __name__ == "__main__":
    logs.configure("error")
    asyncio.run(_draw())

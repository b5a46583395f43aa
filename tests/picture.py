"""Draws docs/demo.svg, the README's picture, from a real run of the demo's world with a few more pods."""

import asyncio
import io
import re
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

from aliquot.cli import showing
from aliquot.cli.world import World
from aliquot.kube import PODS

_PODS = {
    "binpack-1": 3,
    "notebook": 2,
    "embed-0": 6,
    "embed-1": 6,
    "infer-a": 9,
    "train-0": 40,
    "train-1": 30,
    "too-large": 81,
}
_WAITING = {"default/too-large"}
_WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich asks a web host for its font; any monospace font of the reader's machine will do."""
_TARGET = Path(__file__).parent.parent / "docs" / "demo.svg"


def _pod(name: str, units: int) -> dict[str, Any]:
    limits = {"aliyun.com/gpu-mem": str(units)}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


async def _draw() -> None:
    with tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        async with World(Path(folder)) as world:
            changed = asyncio.Event()
            world.plane.on_change(changed.set)
            for name, units in _PODS.items():
                await world.client.create(PODS, _pod(name, units), "default")
            async with asyncio.timeout(30):
                while not _settled(world):
                    changed.clear()
                    await changed.wait()
            console = Console(record=True, width=132, file=io.StringIO())
            console.print(showing.picture(world))
            drawn = console.export_svg(title="aliquot demo", theme=MONOKAI)
            _TARGET.write_text(_WEB_FONT.sub("", drawn))


def _settled(world: World) -> bool:
    pods = {pod.key: pod for pod in world.plane.pods.all()}
    running = {key for key, pod in pods.items() if pod.status.phase == "Running"}
    explained = all(key in pods and pods[key].status.conditions for key in _WAITING)
    return explained and running == {f"default/{name}" for name in _PODS} - _WAITING


if __name__ == "__main__":
    asyncio.run(_draw())

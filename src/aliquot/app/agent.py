"""`aliquot agent`: connects the agent to the API server and to NVIDIA's driver."""

from collections.abc import Mapping
from pathlib import Path

from aliquot import logs
from aliquot.agent import run
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.config.agent_tree import AGENT
from aliquot.config.declaration import Given
from aliquot.dialects import make_dialects
from aliquot.kube import Client


async def serve(given: Mapping[str, Given]) -> None:
    """Run until cancelled. `given` are the keys that flags and variables set. Raises BadConfig."""
    config = AGENT.read("", "", given).tree
    logs.configure(config.log.level)
    dialects = make_dialects(config.prefixes)
    async with Client(config.kubernetes.access()) as client:
        await run(config, client, NvidiaDevices(Path(config.dev_folder)), dialects=dialects)

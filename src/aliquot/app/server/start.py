"""The start of `aliquot server`: finds the configuration, then checks it or serves by it."""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import click
import msgspec

from aliquot import logs
from aliquot.app.server.serving import serve
from aliquot.app.server.transport import certificates
from aliquot.config import rendering
from aliquot.config.checks import doubts
from aliquot.config.declaration import Given
from aliquot.config.live_config import LiveConfig
from aliquot.config.sections.common import KubernetesSection
from aliquot.config.server_tree import ServerConfig
from aliquot.config.sources import ConfigMapSource, FileSource, NoSource, namespace_and_name
from aliquot.config.variables import unknown_variables
from aliquot.control.decision_log.file import require_writable
from aliquot.errors import BadConfig
from aliquot.kube import Client

_ACCESS = "kubernetes."


async def start(given: Mapping[str, Given], file: str | None, config_map: str | None, *, check_only: bool) -> None:
    """Serve until cancelled, or with `check_only` print the configuration in effect. Raises BadConfig.

    `given` are the keys that flags and variables set.
    """
    if file and config_map:
        raise BadConfig("--config and --config-map cannot be combined; give only one of them")
    if config_map:
        namespace_and_name(config_map)  # a wrong form is reported even without access to an API server
    async with AsyncExitStack() as stack:

        async def connect(kubernetes: KubernetesSection) -> Client:
            return await stack.enter_async_context(Client(kubernetes.access()))

        if config_map:
            logs.configure()
            kubernetes = _given_access(given)
            client = await connect(kubernetes)
            live = await LiveConfig.start(ConfigMapSource(config_map, client), given)
        else:
            live = await LiveConfig.start(FileSource(file) if file else NoSource(), given)
            kubernetes = live.tree.kubernetes
        if check_only:
            _check(live.tree)
            click.echo(rendering.effective(live.effective))
        else:
            await serve(live, kubernetes, client if config_map else await connect(kubernetes))


def _check(config: ServerConfig) -> None:
    """Look for what would stop a start, and print warnings. Raises BadConfig."""
    if config.decision_log.file:
        require_writable(Path(config.decision_log.file))
    certificates(config)
    for doubt in (*doubts(config), *unknown_variables(os.environ)):
        click.echo(f"aliquot: warning: {doubt}", err=True)


def _given_access(given: Mapping[str, Given]) -> KubernetesSection:
    """How to reach the API server that has the ConfigMap: only flags and variables can say that."""
    values = {path.removeprefix(_ACCESS): key.value for path, key in given.items() if path.startswith(_ACCESS)}
    return msgspec.convert(values, KubernetesSection)

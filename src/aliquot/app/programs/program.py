"""What the programs share: from an original's command line to a running server with one endpoint."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import click
import structlog

from aliquot import logs
from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, HelpWanted, Parsed, WrongUsage
from aliquot.app.running import run_until_stopped
from aliquot.app.server.serving import serve
from aliquot.config.declaration import Given
from aliquot.config.flags import ConfiguredCommand, given, with_keys
from aliquot.config.live_config import LiveConfig
from aliquot.config.sections.endpoints import ENDPOINTS
from aliquot.config.server import SERVER
from aliquot.config.sources import NoSource
from aliquot.errors import BadConfig
from aliquot.kube import Client, KubeError
from aliquot.kube.resources import NAMESPACES

_log = structlog.get_logger()

_GET_SECONDS = 5.0

_OURS, _THEIRS = "aliquot-system", "kube-system"
"""The namespace of Lease and epoch for `aliquot server` and its policies, and the namespace of the originals."""


@dataclass(frozen=True)
class Translated:
    """A program's command line and variables, translated to keys of the configuration and a form of log lines."""

    given: Mapping[str, Given]
    form: AbstractContextManager[logs.Form | None] = field(default_factory=nullcontext)
    remarks: tuple[str, ...] = ()
    """Flags that were given and have no effect, each with the reason."""
    defaults: Mapping[str, Given] = field(default_factory=dict)
    """Keys that our variables override. In a mapping, they override only the entries that they name."""


@dataclass(frozen=True)
class Program:
    """An original's program, and the name of its endpoint."""

    line: CommandLine
    endpoint: str
    address: str
    translate: Callable[[Parsed], Translated]
    """Raises BadConfig."""
    print_only: Callable[[Parsed], bool] = lambda _: False
    """Prints what the flags ask for, such as the version. Returns whether there was something to print."""
    port_setting: str = "the variable PORT"
    """What sets the port."""

    def main(self, words: Sequence[str] | None = None) -> None:
        """Run with these words of a command line, or with those of this process."""
        parsed = self._parsed(sys.argv[1:] if words is None else words)
        if not self.print_only(parsed):
            run_until_stopped(self._run(parsed))

    def _parsed(self, words: Sequence[str]) -> Parsed:
        """Parse the command line. Ends the process if that fails, as Go's packages do."""
        try:
            return self.line.parse(words)
        except HelpWanted:
            click.echo(self.line.usage())
            sys.exit(0)
        except WrongUsage as error:
            click.echo(f"{error}\n{self.line.usage()}", err=True)
            sys.exit(2)

    async def _run(self, parsed: Parsed) -> None:
        translated = self.translate(parsed)
        live = await LiveConfig.start(NoSource(), self.keys(translated))
        with translated.form as form:
            logs.configure(live.tree.log.level, form)
            for remark in (*translated.remarks, *klog.ignored(parsed), *_remarks(parsed)):
                _log.warning("this has no effect", what=remark)
            async with Client(live.tree.kubernetes.access()) as client:
                if await _exists(client, _OURS):
                    live = await LiveConfig.start(NoSource(), self.keys(translated, _OURS))
                await serve(live, live.tree.kubernetes, client, form, lambda _: self.port_setting)

    def keys(self, translated: Translated, namespace: str = _THEIRS) -> dict[str, Given]:
        """The keys of the configuration. The program's flags override our variables, which override its defaults.

        The defaults are those of the original: one port on the original's address, answers to anyone and for every
        scheduler, and the original's placement. The Lease is in `namespace`.
        """
        values: dict[str, Any] = {
            f"endpoints.{endpoint}.enabled": False for endpoint in ENDPOINTS if endpoint != self.endpoint
        }
        values |= {"listen.address": self.address, "listen.healthPort": 0, "lease.namespace": namespace}
        values |= {f"endpoints.{self.endpoint}.callers": "anyone", "schedulers": "*"}
        defaults = {path: Given(value, f"{self.line.program}'s default") for path, value in values.items()}
        own = {f"endpoints.{self.endpoint}.enabled": Given(True, self.line.program)}
        return {**_overridden({**defaults, **translated.defaults}, _variables()), **translated.given, **own}


def _overridden(defaults: Mapping[str, Given], variables: Mapping[str, Given]) -> dict[str, Given]:
    merged = {**defaults, **variables}
    for path in defaults.keys() & variables.keys():
        default, variable = defaults[path].value, variables[path]
        if isinstance(default, dict):
            merged[path] = replace(variable, value={**default, **variable.value})
    return merged


async def _exists(client: Client, namespace: str) -> bool:
    """Whether the namespace exists. False without the right to see it: such an account may not use a Lease either."""
    try:
        await client.get(NAMESPACES, namespace, timeout=_GET_SECONDS)
    except KubeError:
        return False
    return True


def _variables() -> dict[str, Given]:
    """Our own variables, read as `aliquot server` reads them. Raises BadConfig."""
    command = with_keys(SERVER.settings)(ConfiguredCommand(None))
    try:
        return given(command.make_context("aliquot", []))
    except click.UsageError as error:
        raise BadConfig(error.format_message()) from error


def _remarks(parsed: Parsed) -> Iterator[str]:
    if parsed.others:
        yield f"ignored arguments: {' '.join(parsed.others)}"
    for variable in ("ALIQUOT_CONFIG", "ALIQUOT_CONFIG_MAP"):
        if os.environ.get(variable):
            yield f"{variable}: this program reads no configuration file; use its flags or the other ALIQUOT_ variables"
    if os.environ.get("THREADNESS"):
        yield "THREADNESS: Aliquot has no worker threads and handles each event at once"

"""What the programs share: from a command line to a running server with one endpoint."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import click
import structlog

from aliquot import logs
from aliquot.app.configured import Configured, given, keys
from aliquot.app.options import SETTINGS
from aliquot.app.programs.command_line import CommandLine, HelpWanted, Parsed, WrongUsage
from aliquot.app.running import run_until_stopped
from aliquot.app.server.serving import serve
from aliquot.config import Given, Live, Nothing, meaning
from aliquot.config.tree import ENDPOINTS
from aliquot.errors import BadConfig
from aliquot.kube import Client, KubeError
from aliquot.kube.resources import NAMESPACES

_log = structlog.get_logger()

_LOOK_SECONDS = 5.0

_OURS, _THEIRS = "aliquot-system", "kube-system"
"""Where servers and their admission policies keep Lease and epoch, and where the original ran."""


@dataclass(frozen=True)
class Wanted:
    """What a program's flags and variables ask for: keys of the configuration by path, and how to log."""

    given: Mapping[str, Given]
    form: AbstractContextManager[logs.Form | None] = field(default_factory=nullcontext)
    remarks: tuple[str, ...] = ()
    """What was said and has no effect, with the reason."""
    defaults: Mapping[str, Given] = field(default_factory=dict)
    """What our variables outrank; of a mapping they outrank the entries that they name."""


@dataclass(frozen=True)
class Program:
    """An original, by its endpoint's name."""

    line: CommandLine
    endpoint: str
    address: str
    understand: Callable[[Parsed], Wanted]
    """Raises BadConfig."""
    tells: Callable[[Parsed], bool] = lambda _: False
    """Prints what was asked for instead of a start, and says whether it was."""

    def main(self, words: Sequence[str] | None = None) -> None:
        """Of a command line, or else of this process's."""
        parsed = self._parsed(sys.argv[1:] if words is None else words)
        if not self.tells(parsed):
            run_until_stopped(self._run(parsed))

    def _parsed(self, words: Sequence[str]) -> Parsed:
        """Ends the process for a command line that cannot be read, as Go's packages do."""
        try:
            return self.line.parse(words)
        except HelpWanted:
            click.echo(self.line.usage())
            sys.exit(0)
        except WrongUsage as error:
            click.echo(f"{error}\n{self.line.usage()}", err=True)
            sys.exit(2)

    async def _run(self, parsed: Parsed) -> None:
        wanted = self.understand(parsed)
        live = await Live.start(Nothing(), self.keys(wanted))
        with wanted.form as form:
            logs.configure(live.tree.log.level, form)
            for remark in (*wanted.remarks, *_remarks(parsed)):
                _log.warning("this has no effect", what=remark)
            async with Client(meaning.access(live.tree.kubernetes)) as client:
                if await _is_there(client, _OURS):
                    live = await Live.start(Nothing(), self.keys(wanted, _OURS))
                await serve(live, live.tree.kubernetes, client, form)

    def keys(self, wanted: Wanted, namespace: str = _THEIRS) -> dict[str, Given]:
        """What is given of the configuration: the program's own flags before our variables before its defaults, which
        are no other port, the address that the original had, answers to anyone and for every scheduler as the original
        gave them, the Lease in a namespace that there is, and the original's placement."""
        values: dict[str, Any] = {
            f"endpoints.{endpoint}.enabled": False for endpoint in ENDPOINTS if endpoint != self.endpoint
        }
        values |= {"listen.address": self.address, "listen.healthPort": 0, "lease.namespace": namespace}
        values |= {f"endpoints.{self.endpoint}.callers": "anyone", "schedulers": "*"}
        defaults = {path: Given(value, f"{self.line.program}'s default") for path, value in values.items()}
        own = {f"endpoints.{self.endpoint}.enabled": Given(True, self.line.program)}
        return {**_outranked({**defaults, **wanted.defaults}, _variables()), **wanted.given, **own}


def _outranked(defaults: Mapping[str, Given], variables: Mapping[str, Given]) -> dict[str, Given]:
    merged = {**defaults, **variables}
    for path in defaults.keys() & variables.keys():
        default, said = defaults[path].value, variables[path]
        if isinstance(default, dict):
            merged[path] = replace(said, value={**default, **said.value})
    return merged


async def _is_there(client: Client, namespace: str) -> bool:
    """As far as we can see: with an original's rights we cannot, and then have none for a Lease either."""
    try:
        await client.get(NAMESPACES, namespace, timeout=_LOOK_SECONDS)
    except KubeError:
        return False
    return True


def _variables() -> dict[str, Given]:
    """Our own variables, read as `aliquot server` reads them."""
    command = keys(Configured(None, context_settings=SETTINGS))
    try:
        return given(command.make_context("aliquot", []))
    except click.UsageError as error:
        raise BadConfig(error.format_message()) from error


def _remarks(parsed: Parsed) -> Iterator[str]:
    if parsed.others:
        yield f"the words {' '.join(parsed.others)}: they belong to no flag"
    for variable in ("ALIQUOT_CONFIG", "ALIQUOT_CONFIG_MAP"):
        if os.environ.get(variable):
            yield f"{variable}: this program is configured by its own flags and by our other variables"
    if os.environ.get("THREADNESS"):
        yield "THREADNESS: there are no workers; what is heard of a pod is put down at once"

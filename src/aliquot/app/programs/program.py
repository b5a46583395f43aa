"""What the schedulers' programs share: from a command line to a running server with one endpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot import logs
from aliquot.app.programs.command_line import CommandLine, Parsed
from aliquot.app.programs.starting import Translated, overridden, parse, say_what_has_no_effect, variables
from aliquot.app.running import run_until_stopped
from aliquot.app.server.serving import serve
from aliquot.config.declaration import Given
from aliquot.config.live_config import LiveConfig
from aliquot.config.sections.endpoints import ENDPOINTS
from aliquot.config.server import SERVER
from aliquot.config.sources import NoSource
from aliquot.kube import Client, KubeError
from aliquot.kube.resources import NAMESPACES

_GET_SECONDS = 5.0

_OURS, _THEIRS = "aliquot-system", "kube-system"
"""The namespace of Lease and epoch for `aliquot server` and its policies, and the namespace of the originals."""


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
        parsed = parse(self.line, words)
        if not self.print_only(parsed):
            run_until_stopped(self._run(parsed))

    async def _run(self, parsed: Parsed) -> None:
        translated = self.translate(parsed)
        live = await LiveConfig.start(NoSource(), self.keys(translated))
        with translated.form as form:
            logs.configure(live.tree.log.level, form)
            say_what_has_no_effect(parsed, translated)
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
        return {
            **overridden({**defaults, **translated.defaults}, variables(SERVER.settings)),
            **translated.given,
            **own,
        }


async def _exists(client: Client, namespace: str) -> bool:
    """Whether the namespace exists. False without the right to see it: such an account may not use a Lease either."""
    try:
        await client.get(NAMESPACES, namespace, timeout=_GET_SECONDS)
    except KubeError:
        return False
    return True

"""What the device plugins' programs share: from a command line to a running agent with one dialect."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot import logs
from aliquot.app.agent import serve_config
from aliquot.app.programs.command_line import CommandLine, Parsed
from aliquot.app.programs.starting import Translated, overridden, parse, say_what_has_no_effect, variables
from aliquot.app.running import run_until_stopped
from aliquot.config.agent_tree import AGENT, AgentConfig
from aliquot.config.declaration import Given


@dataclass(frozen=True)
class AgentProgram:
    """An original's program, and the dialect that it serves."""

    line: CommandLine
    dialect: str
    """Empty: the labels of the node decide."""
    translate: Callable[[Parsed], Translated]
    """Raises BadConfig."""
    prepare: Callable[[AgentConfig], Awaitable[None]] | None = None
    """What to do before the agent starts. Raises BadConfig."""

    def main(self, words: Sequence[str] | None = None) -> None:
        """Run with these words of a command line, or with those of this process."""
        run_until_stopped(self._run(parse(self.line, words)))

    async def _run(self, parsed: Parsed) -> None:
        translated = self.translate(parsed)
        config = AGENT.read("", "", self.keys(translated)).tree
        with translated.form as form:
            logs.configure(config.log.level, form)
            say_what_has_no_effect(parsed, translated)
            if self.prepare is not None:
                await self.prepare(config)
            await serve_config(config)

    def keys(self, translated: Translated) -> dict[str, Given]:
        """The keys of the configuration. The program's flags override our variables, which override its defaults."""
        own = {"dialects": Given((self.dialect,), f"{self.line.program}'s default")} if self.dialect else {}
        ours = overridden({**own, **translated.defaults}, variables(AGENT.settings))
        return {**ours, **translated.given}


def access(flag: str, kubeconfig: str) -> dict[str, Given]:
    """How to reach the API server. The originals' manifests set $KUBECONFIG to a file that they do not mount; the
    originals then use the pod's service account."""
    if kubeconfig:
        return {"kubernetes.kubeconfig": Given(kubeconfig, flag)}
    named = os.environ.get("KUBECONFIG", "")
    is_gone = bool(named) and not any(Path(path).exists() for path in named.split(os.pathsep))
    return {"kubernetes.asPod": Given(True, "$KUBECONFIG")} if is_gone else {}

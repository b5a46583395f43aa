"""The configuration of a running server: what is in effect, and what a newer text changes of it."""

from collections.abc import Callable, Mapping

import structlog

from aliquot import metrics
from aliquot.config.reading import Effective, Given, read, tree_of
from aliquot.config.sources import Source
from aliquot.config.tree import SETTINGS, Configuration
from aliquot.errors import BadConfig

_log = structlog.get_logger()

_APPLIED = metrics.CONFIG_RELOADS.labels("applied")
_INVALID = metrics.CONFIG_RELOADS.labels("invalid")


class Live:
    """A text that cannot be used changes nothing: the last good one stays, and `notes` say why."""

    def __init__(self, source: Source, given: Mapping[str, Given], text: str) -> None:
        """Raises BadConfig."""
        self._source = source
        self._given = given
        self._apply: Callable[[Configuration], None] = lambda _: None
        self._trouble = ""
        self._waiting: list[str] = []
        self.effective = self._read(text)
        metrics.CONFIG_VALID.set(1)

    @classmethod
    async def start(cls, source: Source, given: Mapping[str, Given]) -> "Live":
        """`given` are the flags and variables. Raises BadConfig."""
        return cls(source, given, await source.first())

    @property
    def tree(self) -> Configuration:
        return self.effective.tree

    def on_change(self, apply: Callable[[Configuration], None]) -> None:
        """`apply` puts live keys into effect; it may raise BadConfig, and has then changed nothing."""
        self._apply = apply

    async def run(self) -> None:
        """Follow the source until cancelled."""
        await self._source.follow(self.take)

    def notes(self) -> list[str]:
        """What people should know of the configuration's state."""
        kept = f"the configuration cannot be used, the last good one is kept: {self._trouble}"
        waiting = f"a restart is needed for new values of {', '.join(self._waiting)}"
        return [kept] * bool(self._trouble) + [waiting] * bool(self._waiting)

    def take(self, newest: Callable[[], str]) -> None:
        """Put what can be changed under a running server into effect; name the rest."""
        try:
            wanted = self._read(newest())
            changed = [path for path in SETTINGS if wanted.values[path] != self.effective.values[path]]
            live = [path for path in changed if SETTINGS[path].key.live]
            now = self._with(wanted, live)
            self._apply(now.tree)
        except BadConfig as error:
            self._keep_the_last(str(error))
            return
        self.effective = now
        self._note_success(live, [path for path in changed if path not in live])

    def _read(self, text: str) -> Effective:
        found = read(text, self._source.name, self._given)
        own = [path for path, origin in found.origins.items() if origin == self._source.name]
        if unfit := [path for path in own if path.partition(".")[0] in self._source.unfit]:
            raise BadConfig(f"{', '.join(unfit)}: cannot be said in a {self._source.name}, which is read with it")
        return found

    def _with(self, wanted: Effective, paths: list[str]) -> Effective:
        values = {**self.effective.values, **{path: wanted.values[path] for path in paths}}
        origins = {**self.effective.origins, **{path: wanted.origins[path] for path in paths}}
        return Effective(tree_of(values), values, origins)

    def _keep_the_last(self, why: str) -> None:
        self._trouble = why
        _INVALID.inc()
        metrics.CONFIG_VALID.set(0)
        _log.error("the configuration cannot be used, keeping the last good one", source=self._source.name, why=why)

    def _note_success(self, live: list[str], waiting: list[str]) -> None:
        was_in_trouble, self._trouble = bool(self._trouble), ""
        metrics.CONFIG_VALID.set(1)
        metrics.CONFIG_RESTART.set(len(waiting))
        if live or was_in_trouble:
            _APPLIED.inc()
            shown = {path: self.effective.values[path] for path in live}
            _log.info("the configuration changed", source=self._source.name, now=shown)
        if waiting and waiting != self._waiting:
            _log.warning("a restart is needed for new values", source=self._source.name, keys=waiting)
        self._waiting = waiting

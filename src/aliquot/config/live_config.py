"""The configuration of a running server: the values in effect, and how a new text changes them."""

from collections.abc import Callable, Mapping

import structlog

from aliquot import metrics
from aliquot.config.declaration import Effective, Given
from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig
from aliquot.config.sources import Source
from aliquot.errors import BadConfig

_log = structlog.get_logger()

_APPLIED = metrics.CONFIG_RELOADS.labels("applied")
_INVALID = metrics.CONFIG_RELOADS.labels("invalid")


class LiveConfig:
    """Follows a source. An invalid text changes nothing: the last valid text stays, and `notes` say why."""

    def __init__(self, source: Source, given: Mapping[str, Given], text: str) -> None:
        """Raises BadConfig."""
        self._source = source
        self._given = given
        self._apply: Callable[[ServerConfig], None] = lambda _: None
        self._trouble = ""
        self._waiting: list[str] = []
        self.effective = self._read(text)
        metrics.CONFIG_VALID.set(1)

    @classmethod
    async def start(cls, source: Source, given: Mapping[str, Given]) -> "LiveConfig":
        """`given` are the flags and variables. Raises BadConfig."""
        return cls(source, given, await source.first())

    @property
    def tree(self) -> ServerConfig:
        return self.effective.tree

    def on_change(self, apply: Callable[[ServerConfig], None]) -> None:
        """`apply` puts live keys into effect. If it raises BadConfig, it must have changed nothing."""
        self._apply = apply

    async def run(self) -> None:
        """Follow the source until cancelled."""
        await self._source.follow(self.update)

    def notes(self) -> list[str]:
        """Problems of the configuration, for people."""
        kept = f"the configuration is invalid, keeping the last valid one: {self._trouble}"
        waiting = f"restart the server to apply new values of {', '.join(self._waiting)}"
        return [kept] * bool(self._trouble) + [waiting] * bool(self._waiting)

    def update(self, latest: Callable[[], str]) -> None:
        """Apply the live keys of the latest text, and note the keys that need a restart."""
        try:
            wanted = self._read(latest())
            changed = [path for path in SERVER.settings if wanted.values[path] != self.effective.values[path]]
            live = [path for path in changed if SERVER.settings[path].key.live]
            now = self._with(wanted, live)
            self._apply(now.tree)
        except BadConfig as error:
            self._keep_last(str(error))
            return
        self.effective = now
        self._note_success(live, [path for path in changed if path not in live])

    def _read(self, text: str) -> Effective[ServerConfig]:
        found = SERVER.read(text, self._source.name, self._given)
        own = [path for path, origin in found.origins.items() if origin == self._source.name]
        if wrong := [path for path in own if path.partition(".")[0] in self._source.unsupported]:
            raise BadConfig(
                f"{', '.join(wrong)}: not allowed in {self._source.name}, because the server needs them to read it"
            )
        return found

    def _with(self, wanted: Effective[ServerConfig], paths: list[str]) -> Effective[ServerConfig]:
        values = {**self.effective.values, **{path: wanted.values[path] for path in paths}}
        origins = {**self.effective.origins, **{path: wanted.origins[path] for path in paths}}
        return Effective(SERVER.tree_of(values), values, origins)

    def _keep_last(self, why: str) -> None:
        self._trouble = why
        _INVALID.inc()
        metrics.CONFIG_VALID.set(0)
        _log.error("the configuration is invalid, keeping the last valid one", source=self._source.name, why=why)

    def _note_success(self, live: list[str], waiting: list[str]) -> None:
        was_invalid, self._trouble = bool(self._trouble), ""
        metrics.CONFIG_VALID.set(1)
        metrics.CONFIG_RESTART.set(len(waiting))
        if live or was_invalid:
            _APPLIED.inc()
            shown = {path: self.effective.values[path] for path in live}
            _log.info("the configuration changed", source=self._source.name, now=shown)
        if waiting and waiting != self._waiting:
            _log.warning("restart the server to apply new values", source=self._source.name, keys=waiting)
        self._waiting = waiting

"""Why the agent is not ready."""

from aliquot.agent.card_reader import CardReader
from aliquot.agent.plugin import DevicePlugin


class Readiness:
    def __init__(self) -> None:
        self._reader: CardReader | None = None
        self._plugins: list[DevicePlugin] = []
        self._needs_plugin = True

    def begin(self, reader: CardReader) -> None:
        """The agent has dialects to serve, and looks for cards."""
        self._reader, self._plugins, self._needs_plugin = reader, [], True

    def add(self, plugin: DevicePlugin) -> None:
        self._plugins.append(plugin)

    def needs_no_plugin(self) -> None:
        """Another vendor's plugin serves the node."""
        self._needs_plugin = False

    def trouble(self) -> list[str]:
        """What is missing, in words; empty if containers can get cards."""
        if self._reader is None:
            return ["there is no dialect to serve yet; the log says why"]
        if self._reader.missing:
            return [f"no card to serve: {self._reader.missing}"]
        if self._needs_plugin and not self._plugins:
            return ["the cards have not been read yet"]
        found = (
            plugin.rival or f"kubelet does not know the device plugin of {plugin.resource} yet"
            for plugin in self._plugins
            if plugin.rival or not plugin.is_registered
        )
        return list(dict.fromkeys(found))  # a rival for other resources is every plugin's

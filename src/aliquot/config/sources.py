"""Where the server's configuration is: a file or a ConfigMap, read at the start and followed afterwards."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

import structlog

from aliquot.clock import Clock, SystemClock
from aliquot.errors import BadConfig
from aliquot.kube import CONFIG_MAPS, ApiError, Client, ConfigMap, Informer, KubeError, TooManyRequests
from aliquot.model.bounds import LARGEST_CONFIG
from aliquot.plain import why

_log = structlog.get_logger()

KEY = "config.yaml"
"""The entry of the ConfigMap that holds the text."""

_POLL_SECONDS = 1.0
_RETRY_SECONDS = 2.0

OnText = Callable[[Callable[[], str]], None]
"""Receives a function that returns the latest text, or raises BadConfig if there is none."""


class Source(Protocol):
    name: str
    unsupported: tuple[str, ...] = ()
    """Sections that this source cannot contain."""

    async def first(self) -> str:
        """Read the text for the start. Raises BadConfig."""

    async def follow(self, on_text: OnText, /) -> None:
        """Call `on_text` whenever the text may have changed. Returns only if there is nothing to follow."""


class NoSource:
    """For a configuration that consists of flags and variables only."""

    name = "no source"
    unsupported: tuple[str, ...] = ()

    async def first(self) -> str:
        return ""

    async def follow(self, _: OnText) -> None:
        return


class FileSource:
    """A file, checked every second. Follows symbolic links: kubelet updates a mounted ConfigMap by swapping one."""

    unsupported: tuple[str, ...] = ()

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        self.name = path
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._seen: tuple[int, ...] = ()

    async def first(self) -> str:
        self._seen = self._stamp()
        return self._read()

    async def follow(self, on_text: OnText) -> NoReturn:
        while True:
            await self._clock.sleep(_POLL_SECONDS)
            now = self._stamp()
            if now != self._seen:
                self._seen = now
                on_text(self._read)

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> str:
        try:
            with self._path.open() as file:
                return file.read(LARGEST_CONFIG + 1)  # one byte too many is enough to reject it
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfig(f"{self.name} cannot be read: {why(error)}") from error


def namespace_and_name(where: str) -> tuple[str, str]:
    """The namespace and the name of a ConfigMap. Raises BadConfig."""
    namespace, _, name = where.partition("/")
    if not (namespace and name) or "/" in name:
        raise BadConfig(f"--config-map {where}: write NAMESPACE/NAME")
    return namespace, name


class ConfigMapSource:
    """A ConfigMap, `namespace/name`. At the start, waits for an API server that does not answer yet."""

    unsupported: tuple[str, ...] = ("kubernetes",)

    def __init__(self, where: str, client: Client, clock: Clock | None = None) -> None:
        self._namespace, self._name = namespace_and_name(where)
        self.name = f"ConfigMap {where}"
        self._client = client
        self._clock = clock or SystemClock()

    async def first(self) -> str:
        while True:
            try:
                found = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
            except KubeError as error:
                if isinstance(error, ApiError) and not isinstance(error, TooManyRequests):
                    raise BadConfig(f"{self.name} cannot be read: {error}") from error
                _log.warning("cannot read the configuration, retrying", source=self.name, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            return self._text(found)

    async def follow(self, on_text: OnText) -> NoReturn:
        def changed(_: ConfigMap | None, new: ConfigMap | None) -> None:
            on_text(lambda: self._text(new))

        selector = {"fieldSelector": f"metadata.name={self._name}"}
        informer = Informer(
            self._client, CONFIG_MAPS, changed, namespace=self._namespace, selector=selector, clock=self._clock
        )
        await informer.run()

    def _text(self, found: ConfigMap | None) -> str:
        if found is None:
            raise BadConfig(f"{self.name} was deleted")
        data = found.data or {}
        if KEY not in data:
            raise BadConfig(f"{self.name} has no entry {KEY}; its entries are {', '.join(sorted(data)) or 'none'}")
        return data[KEY]

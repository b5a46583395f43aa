"""Where the configuration is kept: a file or a ConfigMap, read at the start and followed from then on."""

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
"""The ConfigMap's entry that holds the text."""

_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 2.0

Taker = Callable[[Callable[[], str]], None]
"""Is handed a way to the newest text, which raises BadConfig when there is none."""


class Source(Protocol):
    name: str
    unfit: tuple[str, ...] = ()
    """Sections that cannot be said here."""

    async def first(self) -> str:
        """The text to start with. Raises BadConfig."""

    async def follow(self, take: Taker, /) -> None:
        """Call `take` whenever the text may be another one. Ends only by being cancelled, or if there is nothing to
        follow."""


class Nothing:
    """Only flags and variables."""

    name = "nothing"
    unfit: tuple[str, ...] = ()

    async def first(self) -> str:
        return ""

    async def follow(self, _: Taker) -> None:
        return


class File:
    """Looked at once a second, through symbolic links: kubelet changes a mounted ConfigMap by swapping one."""

    unfit: tuple[str, ...] = ()

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        self.name = path
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._seen: tuple[int, ...] = ()

    async def first(self) -> str:
        self._seen = self._look()
        return self._read()

    async def follow(self, take: Taker) -> NoReturn:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            now = self._look()
            if now != self._seen:
                self._seen = now
                take(self._read)

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> str:
        try:
            with self._path.open() as file:
                return file.read(LARGEST_CONFIG + 1)  # enough to be refused for
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfig(f"{self.name} cannot be read: {why(error)}") from error


class Map:
    """A ConfigMap, `namespace/name`. An API server that is away at the start is waited for: it may not be up yet."""

    unfit: tuple[str, ...] = ("kubernetes",)

    def __init__(self, where: str, client: Client, clock: Clock | None = None) -> None:
        self._namespace, slash, self._name = where.partition("/")
        if not (self._namespace and slash and self._name) or "/" in self._name:
            raise BadConfig(f"--config-map {where}: write NAMESPACE/NAME")
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
                _log.warning("the configuration cannot be read, trying again", source=self.name, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            return self._text(found)

    async def follow(self, take: Taker) -> NoReturn:
        def changed(_: ConfigMap | None, new: ConfigMap | None) -> None:
            take(lambda: self._text(new))

        selector = {"fieldSelector": f"metadata.name={self._name}"}
        informer = Informer(
            self._client, CONFIG_MAPS, changed, namespace=self._namespace, selector=selector, clock=self._clock
        )
        await informer.run()

    def _text(self, found: ConfigMap | None) -> str:
        if found is None:
            raise BadConfig(f"{self.name} is gone")
        data = found.data or {}
        if KEY not in data:
            raise BadConfig(f"{self.name} has no entry {KEY}; it has {', '.join(sorted(data)) or 'none'}")
        return data[KEY]

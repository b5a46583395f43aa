"""An informer: a local copy of one kind of object, kept current by list and watch."""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from typing import Generic, NoReturn

import structlog

from aliquot.clock import Clock, SystemClock
from aliquot.kube.client import Client
from aliquot.kube.errors import Forbidden, Gone, KubeError, NoAnswer, Unreadable
from aliquot.kube.resources import ApiResource, ObjectT
from aliquot.racing import first_of

_log = structlog.get_logger()

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_LONGEST_WISH = 60.0
_A_WHILE = 0.5


class Informer(Generic[ObjectT]):
    """Calls `handler(old, new)` for each change, in order and never recursively.

    `old` is None for a new object, `new` is None for a deleted one. An object that was deleted and recreated under the
    same name between two lists comes as two calls, so that the handler never mistakes one for the other.

    Objects are found by key, by UID, and by each of `indexes`, such as the node. An index that returns an empty string
    leaves the object out. The indexes are up to date when the handler is called.
    """

    def __init__(
        self,
        client: Client,
        resource: ApiResource[ObjectT],
        handler: Callable[[ObjectT | None, ObjectT | None], None],
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        indexes: Mapping[str, Callable[[ObjectT], str]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._handler = handler
        self._namespace = namespace
        self._selector = selector
        self._clock = clock or SystemClock()
        self._objects: dict[str, ObjectT] = {}
        self._by_uid: dict[str, ObjectT] = {}
        self._indexes = dict(indexes or {})
        self._indexed: dict[str, dict[str, dict[str, ObjectT]]] = {name: {} for name in self._indexes}
        self._pause = _FIRST_PAUSE
        self._version = ""
        """The resourceVersion up to which the copy is complete; empty if it must list again."""
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self.synced = asyncio.Event()
        self.trouble = "has not listed yet"
        """Why the copy may be out of date; empty while a watch is open."""
        self.is_forbidden = False
        """Whether the trouble is a missing right."""
        self.heard_at = -math.inf
        """When the API server last sent data. Even for a quiet kind it sends a bookmark every minute."""

    def get(self, key: str) -> ObjectT | None:
        return self._objects.get(key)

    def all(self) -> list[ObjectT]:
        return list(self._objects.values())

    def with_uid(self, uid: str) -> ObjectT | None:
        return self._by_uid.get(uid)

    def having(self, index: str, word: str) -> list[ObjectT]:
        """The objects with this value in an index."""
        return list(self._indexed[index].get(word, {}).values())

    async def refresh(self) -> None:
        """List again. Returns when the copy has everything that the API server had at the time of the call."""
        listed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(listed)
        self._asked.set()
        await listed

    async def run(self) -> NoReturn:
        """List and watch forever. Retries failures with a jittered backoff."""
        while True:
            try:
                await self._follow()
            except Gone as error:
                self._version = ""
                self.trouble = f"the copy of {self._resource.plural} is too old: {error}"
                self.is_forbidden = False
                await self._rest()
            except KubeError as error:
                if isinstance(error, Unreadable):
                    self._version = ""
                trouble = f"cannot read {self._resource.plural}: {error}"
                if trouble != self.trouble:  # log a lasting failure once
                    _log.warning("cannot list or watch objects, retrying", kind=self._resource.plural, error=str(error))
                self.trouble, self.is_forbidden = trouble, isinstance(error, Forbidden)
                await self._rest(error.retry_after or 0.0)

    async def _rest(self, at_least: float = 0.0) -> None:
        """Sleep for as long as a busy server asks, within limits, plus a jittered backoff."""
        await self._clock.sleep(min(at_least, _LONGEST_WISH) + self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    async def _follow(self) -> None:
        """List if needed, and watch. Returns when somebody asks for a fresh list."""
        if not self._version or self._asked.is_set():
            await self._list()
        await first_of(self._watch(), self._asked.wait())

    async def _list(self) -> None:
        """List once. Callers that ask during this list, or before a list that fails, get the next one."""
        answered = len(self._waiting)
        listing = await self._client.list(self._resource, namespace=self._namespace, selector=self._selector)
        self._replace({item.key: item for item in listing.items})
        self.trouble, self.heard_at = "", self._clock.monotonic()
        self.synced.set()
        for listed in self._waiting[:answered]:
            if not listed.done():
                listed.set_result(None)
        del self._waiting[:answered]
        if not self._waiting:
            self._asked.clear()
        self._version = listing.resource_version

    async def _watch(self) -> NoReturn:
        """Watch, and resume a watch that ends: at once if it was open for a while, else after a pause."""
        while True:
            heard, began = False, self._clock.monotonic()
            changes = self._client.watch(
                self._resource,
                self._version,
                namespace=self._namespace,
                selector=self._selector,
                opened=self._note_opened,
            )
            try:
                async for change in changes:
                    heard, self.heard_at = True, self._clock.monotonic()
                    self._version = change.resource_version
                    if change.object is not None:
                        self._apply(change.type, change.object)
            except NoAnswer:
                if not heard and self._clock.monotonic() - began < _A_WHILE:
                    raise
            if heard or self._clock.monotonic() - began >= _A_WHILE:
                self._pause = _FIRST_PAUSE
            else:  # do not loop tightly against a server that ends every watch at once
                await self._rest()

    def _note_opened(self) -> None:
        self.trouble, self.heard_at = "", self._clock.monotonic()

    def _replace(self, listed: Mapping[str, ObjectT]) -> None:
        for key in [key for key in self._objects if key not in listed]:
            self._move(key, None)
        for key, new in listed.items():
            old = self._objects.get(key)
            if old is None or old.metadata.resource_version != new.metadata.resource_version:
                self._move(key, new)

    def _apply(self, kind: str, changed: ObjectT) -> None:
        self._move(changed.key, None if kind == "DELETED" else changed)

    def _move(self, key: str, new: ObjectT | None) -> None:
        old = self._objects.get(key)
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self._move(key, None)
            old = None
        if old is not None:
            self._take_out(key, old)
        if new is not None:
            self._put_in(key, new)
        if old is not None or new is not None:
            self._handler(old, new)

    def _put_in(self, key: str, new: ObjectT) -> None:
        self._objects[key] = self._by_uid[new.metadata.uid] = new
        for name, word_of in self._indexes.items():
            word = word_of(new)
            if word:
                self._indexed[name].setdefault(word, {})[key] = new

    def _take_out(self, key: str, old: ObjectT) -> None:
        del self._objects[key]
        self._by_uid.pop(old.metadata.uid, None)
        for name, word_of in self._indexes.items():
            word = word_of(old)
            if word:
                held = self._indexed[name][word]
                del held[key]
                if not held:
                    del self._indexed[name][word]

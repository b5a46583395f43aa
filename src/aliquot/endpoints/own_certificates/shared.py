"""One Secret with the query API's CA and certificate, which every replica follows, and any replica renews."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NoReturn

import structlog

from aliquot.clock import Clock, came, utc
from aliquot.control.leadership.rights import create_secrets, keep_secret
from aliquot.endpoints.own_certificates.bundle import ROTATION_KEYS, Bundle, Terms, fresh, renewed
from aliquot.errors import BadRecord
from aliquot.kube import Client, Informer, KubeError
from aliquot.kube.errors import Conflict, Forbidden, NotFound
from aliquot.kube.resources import SECRETS, Secret
from aliquot.kube.rights import Right
from aliquot.signals import Signal

_log = structlog.get_logger()

_LOOK_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 5.0
"""After a failure: an API server that was down may have no Secret to tell of."""
_TRIES = 5


class SharedCertificates:
    """Starts with a bundle of its own, which becomes the shared one if there is none yet. Call `look` once before use;
    `run` follows and renews it. `knows` says whether the API server knows the CAs of a bundle."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        name: str,
        terms: Terms,
        knows: Callable[[Bundle], Awaitable[bool]],
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._terms = terms
        self._knows = knows
        self._trouble = ""
        self._changed_there = asyncio.Event()
        self._informer: Informer[Secret] = Informer(
            client,
            SECRETS,
            lambda _, __: self._changed_there.set(),
            namespace=namespace,
            selector={"fieldSelector": f"metadata.name={name}"},
            clock=clock,
        )
        self.bundle = fresh(terms, self._now())
        self.changed: Signal[None] = Signal()

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        return [self._trouble] if self._trouble else []

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as following:
            following.create_task(self._informer.run())
            while True:
                pause = _LOOK_AGAIN_SECONDS if self._trouble else _LOOK_SECONDS
                await came(self._changed_there, pause, self._clock)
                self._changed_there.clear()
                await self.look()
        raise AssertionError("an informer does not end")

    async def look(self) -> None:
        """Read the Secret; create or renew it if that is due; use what it has."""
        try:
            for _ in range(_TRIES):
                try:
                    self._use(await self._current())
                    self._trouble = ""
                    return
                except Conflict:  # another replica was faster
                    continue
            self._note("other servers change it all the time")
        except _Missing as error:
            self._note(f"{error.right}; the rule to add: {error.right.rule()}")
            self._use(renewed(self.bundle, self._terms, self._now(), switch=False))
        except KubeError as error:
            self._note(str(error))

    async def _current(self) -> Bundle:
        """Raises KubeError, Conflict if another replica changed the Secret, or _Missing."""
        rights = keep_secret(self._namespace, self._name)
        try:
            secret = await self._client.get(SECRETS, self._name, self._namespace)
        except NotFound:
            return await self._create()
        except Forbidden as error:
            raise _Missing(rights) from error
        stored = self._read(secret)
        wanted = await self._renewed(stored) if stored is not None else fresh(self._terms, self._now())
        if wanted is not stored:
            dropped = dict.fromkeys((secret.data or {}).keys() & ROTATION_KEYS)
            version = secret.metadata.resource_version
            body = {"data": {**dropped, **_encoded(wanted)}}
            try:
                await self._client.patch(SECRETS, self._name, body, namespace=self._namespace, version=version)
            except Forbidden as error:
                raise _Missing(rights) from error
            _log.info("renewed the query API's certificates", secret=self._shown, until=str(wanted.pair.until))
        return wanted

    async def _create(self) -> Bundle:
        """A deleted Secret means that its keys must not be used any more."""
        made = fresh(self._terms, self._now())
        body = {"metadata": {"name": self._name}, "type": "Opaque", "data": _encoded(made)}
        try:
            await self._client.create(SECRETS, body, self._namespace)
        except Forbidden as error:
            raise _Missing(create_secrets(self._namespace)) from error
        _log.info("made a CA and a certificate for the query API", secret=self._shown)
        return made

    def _read(self, secret: Secret) -> Bundle | None:
        """The stored bundle; None if it is of no use."""
        try:
            found = Bundle.read({key: b64decode(value) for key, value in (secret.data or {}).items()})
        except (BadRecord, ValueError) as error:
            _log.warning("the query API's certificates are replaced", secret=self._shown, why=str(error))
            return None
        return found if found.can_sign(self._now()) else None

    async def _renewed(self, stored: Bundle) -> Bundle:
        now = self._now()
        switch = stored.wants_to_switch(self._terms, now) and await self._knows(stored)
        return renewed(stored, self._terms, now, switch=switch)

    def _use(self, bundle: Bundle) -> None:
        if bundle != self.bundle:
            self.bundle = bundle
            self.changed.emit(None)

    def _note(self, why: str) -> None:
        trouble = f"Secret {self._shown}: {why}"
        if trouble != self._trouble:
            _log.warning("cannot share the query API's certificates", why=trouble)
        self._trouble = trouble

    @property
    def _shown(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _now(self) -> datetime:
        return utc(self._clock).replace(microsecond=0)  # certificates have whole seconds


class _Missing(Exception):
    def __init__(self, right: Right) -> None:
        super().__init__(str(right))
        self.right = right


def _encoded(bundle: Bundle) -> dict[str, str]:
    return {key: b64encode(value).decode() for key, value in bundle.data().items()}

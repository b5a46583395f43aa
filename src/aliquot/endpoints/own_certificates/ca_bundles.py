"""Makes the CAs of the query API known to the API server: the `caBundle` of its APIServices."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import NoReturn

import structlog

from aliquot.clock import Clock, came
from aliquot.control.leadership.rights import keep_api_service
from aliquot.errors import AliquotError, BadConfig
from aliquot.kube import Client, KubeError
from aliquot.kube.errors import Forbidden, NotFound
from aliquot.kube.resources import API_SERVICES, ApiService, ServiceReference

_log = structlog.get_logger()

_LOOK_SECONDS = 30.0


class CaBundles:
    """Changes only APIServices that point to our Service, and only if they differ. `trusted` reads the CAs, as PEM, as
    they are now. It may raise BadConfig: the APIServices then keep theirs."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        names: Sequence[str],
        service: ServiceReference,
        trusted: Callable[[], bytes],
    ) -> None:
        self._client = client
        self._clock = clock
        self._names = names
        self._service = service
        self._trusted = trusted
        self._troubles: dict[str, str] = {}
        self._asked = asyncio.Event()

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        return list(self._troubles.values())

    def look_soon(self) -> None:
        self._asked.set()

    async def run(self) -> NoReturn:
        while True:
            self._asked.clear()
            await self.look()
            await came(self._asked, _LOOK_SECONDS, self._clock)

    async def look(self) -> None:
        """Make our CAs known where they are not."""
        for name in self._names:
            await self._keep(name)

    async def know(self, ca: bytes) -> bool:
        """Whether all our APIServices trust this CA."""
        try:
            found = [await self._ours(name) for name in self._names]
        except KubeError:
            return False
        return all(ca in _bundle(known) for known in found if known is not None)

    async def _keep(self, name: str) -> None:
        try:
            known = await self._ours(name)
            if known is not None:
                await self._update(known)
        except (KubeError, BadConfig) as error:
            self._note(name, error)

    async def _update(self, known: ApiService) -> None:
        """Raises KubeError, BadConfig."""
        trusted, name = self._trusted(), known.metadata.name
        if _bundle(known) == trusted and not known.spec.insecure_skip_tls_verify:
            return
        # the API server refuses a caBundle together with insecureSkipTLSVerify; it also writes the status all the time,
        # so a patch of this version alone would fail
        spec = {"caBundle": b64encode(trusted).decode(), "insecureSkipTLSVerify": None}
        await self._client.patch(API_SERVICES, name, {"spec": spec})
        _log.info("made the CA of the query API known", api_service=name)

    async def _ours(self, name: str) -> ApiService | None:
        """The APIService, if it exists and points to our Service. Raises KubeError."""
        try:
            known = await self._client.get(API_SERVICES, name)
        except NotFound:
            self._troubles.pop(name, None)
            return None
        if known.spec.service == self._service:
            self._troubles.pop(name, None)
            return known
        where = known.spec.service
        there = f"Service {where.namespace}/{where.name}" if where is not None else "no Service"
        ours = f"{self._service.namespace}/{self._service.name}"
        self._troubles[name] = f"APIService {name} points to {there}, not to {ours} (queryApi.service)"
        return None

    def _note(self, name: str, error: AliquotError) -> None:
        right = keep_api_service(name)
        why = f"{right}; the rule to add: {right.rule()}" if isinstance(error, Forbidden) else str(error)
        trouble = f"APIService {name}: {why}"
        if self._troubles.get(name) != trouble:
            _log.warning("cannot make the CA of the query API known", why=trouble)
        self._troubles[name] = trouble


def _bundle(known: ApiService) -> bytes:
    try:
        return b64decode(known.spec.ca_bundle or "")
    except ValueError:
        return b""

"""Leader election on a Lease (coordination.k8s.io/v1), as the other components of Kubernetes do it.

No clock of another machine is trusted. A holder believes in itself for `renew` seconds from the moment at which it sent
its last accepted renewal. Others wait for the Lease's whole duration from the moment at which they saw it change last.
The first span begins earlier and is shorter, so the two never overlap while clocks run at about the same rate.
"""

import asyncio
import math
import os
import random
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog

from aliquot.clock import Clock, SystemClock, rfc3339
from aliquot.errors import BadConfig
from aliquot.kube.client import Client
from aliquot.kube.errors import AlreadyExists, Conflict, KubeError, NoAnswer, NotFound
from aliquot.kube.resources import LEASES, Lease, LeaseSpec
from aliquot.racing import first_of

_log = structlog.get_logger()

_JITTER = 1.2


@dataclass(frozen=True)
class Terms:
    """Seconds: how long others wait for a silent holder, how long it believes in itself, and how often all try."""

    duration: int = 15
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew > self.retry * _JITTER > 0:
            raise BadConfig(
                f"lease duration {self.duration:g} s must be longer than renew {self.renew:g} s, "
                f"and that longer than {_JITTER} times retry {self.retry:g} s"
            )


def identity() -> str:
    """A name that no other process has, nor this one after a restart."""
    return f"{socket.gethostname()}_{os.getpid()}_{os.urandom(6).hex()}"


class Elector:
    """One candidate for a Lease. Ask `holds()` at the moment when it matters: it is reckoned, not remembered.

    It may run on another thread than whoever leads. `is_alive` says whether that one still works: otherwise the Lease
    is neither taken nor renewed.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        *,
        terms: Terms | None = None,
        clock: Clock | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._is_alive = is_alive
        self._name, self._namespace = name, namespace
        self._identity = identity
        self._terms = terms or Terms()
        self._clock = clock or SystemClock()
        self._until = -math.inf
        self._version = ""
        """Of the Lease as it was last seen; empty if there is none."""
        self._seen: LeaseSpec | None = None
        self._seen_at = -math.inf
        self._seen_annotations: Mapping[str, str] = {}
        self.trouble = ""
        """Why the last attempt failed; empty if it did not."""
        self._abstains_until = -math.inf
        self.annotations: Mapping[str, str] = {}
        """What we write on the Lease when we take it, such as where the holder can be reached."""

    def holds(self) -> bool:
        return self._clock.monotonic() < self._until

    @property
    def holder(self) -> str:
        """Who holds the Lease, as far as we can see; empty if nobody does."""
        if self.holds():
            return self._identity
        if self._seen is None or self._ran_out(self._seen) or self._seen.holder_identity == self._identity:
            return ""  # also where the Lease still names us: we have stopped believing it
        return self._seen.holder_identity or ""

    def abstain(self, seconds: float) -> None:
        """Leave the Lease to others for so long, and only look at it."""
        self._abstains_until = self._clock.monotonic() + seconds

    @property
    def holders_annotations(self) -> Mapping[str, str]:
        """What the holder wrote on the Lease; nothing if nobody holds it."""
        return self._seen_annotations if self.holder else {}

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
        """Take the Lease when it is free and call `lead`, which is cancelled when the Lease is lost.

        When `lead` returns, the Lease is given back and we stand again; when it raises, that is raised. Cancel this to
        stop: the Lease is given back when `lead` has ended, so that the next holder need not wait.
        """
        while True:
            while not self.holds():
                await self._attempt_within(self._terms.renew)
                if not self.holds():
                    await self._clock.sleep(self._pause())
            _log.info("holds the Lease", lease=self._name, identity=self._identity)
            await self._lead(lead)

    async def _lead(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await first_of(lead(), self._renew())
        finally:
            await self.release()

    async def _renew(self) -> None:
        """Returns when the Lease is lost."""
        while self.holds():
            await self._clock.sleep(min(self._pause(), self._left()))
            if self.holds():
                await self._attempt_within(self._left())
        _log.warning("has lost the Lease", lease=self._name, identity=self._identity, holder=self.holder)

    async def _attempt_within(self, seconds: float) -> None:
        """An attempt that fails is told and made again later."""
        try:
            if await first_of(self.attempt(), self._clock.sleep(seconds)) != 0:
                raise NoAnswer(f"no answer within {seconds:g} s")
            self.trouble = ""
        except KubeError as error:
            self.trouble = str(error)
            _log.warning("cannot take or renew the Lease, trying again", lease=self._name, error=str(error))

    async def attempt(self) -> None:
        """One try to take or to renew the Lease. Raises KubeError; what we believed before, we still do then."""
        if not self.holds():
            await self._look()
        if not self._is_ours_or_free() or self._clock.monotonic() < self._abstains_until:
            return
        if not self._is_alive():
            _log.warning("does not ask for the Lease: whoever leads gives no sign of life", lease=self._name)
            return
        began = self._clock.monotonic()
        try:
            written = await self._write()
        except AlreadyExists:
            return
        except (Conflict, NotFound) as error:
            if isinstance(error, NotFound) and not self._version:
                raise  # there is no such namespace
            await self._look()
            if self._seen is not None and self._seen.holder_identity != self._identity:
                self._until = -math.inf
            return
        self._see(written)
        self._until = began + self._terms.renew

    async def release(self) -> None:
        """Give the Lease back, if we hold it. We stop believing before anybody else can begin to."""
        if not self.holds():
            return
        self._until = -math.inf
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            async with asyncio.timeout(self._terms.retry):
                self._see(await self._patch(spec))
        except (KubeError, TimeoutError) as error:
            _log.warning("cannot give the Lease back, it runs out", lease=self._name, error=str(error))

    async def _look(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace, timeout=self._terms.renew)
        except NotFound:
            # who held it may still believe in itself, so what was seen of it counts on
            self._version = ""
        else:
            self._see(lease)

    def _see(self, lease: Lease) -> None:
        self._version = lease.metadata.resource_version
        self._seen_annotations = lease.metadata.annotations
        if lease.spec != self._seen:
            self._seen_at = self._clock.monotonic()  # first, since others read both at any moment
            self._seen = lease.spec

    def _is_ours_or_free(self) -> bool:
        seen = self._seen
        return seen is None or seen.holder_identity in (None, "", self._identity) or self._ran_out(seen)

    def _ran_out(self, seen: LeaseSpec) -> bool:
        duration = seen.lease_duration_seconds or self._terms.duration
        return self._clock.monotonic() >= self._seen_at + duration

    async def _write(self) -> Lease:
        now, seen = self._now(), self._seen or LeaseSpec()
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._terms.duration,
            "renewTime": now,
        }
        if seen.holder_identity != self._identity or not self._version:
            transitions = 0 if self._seen is None else (seen.lease_transitions or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        if self._version:
            return await self._patch(spec)
        metadata = {"name": self._name, "namespace": self._namespace, "annotations": self.annotations}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self._client.create(LEASES, body, self._namespace)

    async def _patch(self, spec: dict[str, Any]) -> Lease:
        """A patch and not a PUT: labels and whatever else others wrote there stay."""
        body = {"metadata": {"annotations": self.annotations}, "spec": spec} if self.annotations else {"spec": spec}
        return await self._client.patch(LEASES, self._name, body, namespace=self._namespace, version=self._version)

    def _left(self) -> float:
        return max(0.0, self._until - self._clock.monotonic())

    def _pause(self) -> float:
        return self._terms.retry * random.uniform(1.0, _JITTER)

    def _now(self) -> str:
        return rfc3339(self._clock.wall_ns(), fraction=True)

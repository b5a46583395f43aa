"""Leader election on a Lease (coordination.k8s.io/v1), as in the components of Kubernetes.

It trusts no other machine's clock. A holder leads for `renew` seconds after it sent its last accepted renewal. Others
wait for the Lease's full duration after they last saw it change. The first period starts earlier and is shorter, so the
two never overlap while clocks run at about the same rate.
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
class LeaseTiming:
    """Seconds: how long others wait for a silent holder, how long a holder leads without renewal, how often all try."""

    duration: int = 15
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew > self.retry * _JITTER > 0:
            raise BadConfig(
                f"lease duration {self.duration:g} s must be longer than renew {self.renew:g} s, "
                f"and renew longer than {_JITTER} times retry {self.retry:g} s"
            )


def identity() -> str:
    """A unique name for this process; a restart gets another one."""
    return f"{socket.gethostname()}_{os.getpid()}_{os.urandom(6).hex()}"


class LeaderElector:
    """A candidate for a Lease. Call `holds()` whenever it matters: the answer depends on the current time.

    It may run on a different thread from the work that it elects a leader for. If `is_alive` says that this work no
    longer runs, it neither takes nor renews the Lease.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        *,
        terms: LeaseTiming | None = None,
        clock: Clock | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._is_alive = is_alive
        self._name, self._namespace = name, namespace
        self._identity = identity
        self._terms = terms or LeaseTiming()
        self._clock = clock or SystemClock()
        self._until = -math.inf
        self._version = ""
        """The resourceVersion of the Lease as last seen; empty if there is none."""
        self._seen: LeaseSpec | None = None
        self._seen_at = -math.inf
        self._seen_annotations: Mapping[str, str] = {}
        self.trouble = ""
        """Why the last attempt failed; empty if it did not."""
        self._abstains_until = -math.inf
        self.annotations: Mapping[str, str] = {}
        """Annotations that we write on the Lease when we take it, such as our address."""

    def holds(self) -> bool:
        return self._clock.monotonic() < self._until

    @property
    def holder(self) -> str:
        """The identity of the holder as far as we know; empty if there is none."""
        if self.holds():
            return self._identity
        if self._seen is None or self._ran_out(self._seen) or self._seen.holder_identity == self._identity:
            return ""  # also if the Lease still names us: our term is over
        return self._seen.holder_identity or ""

    def abstain(self, seconds: float) -> None:
        """Leave the Lease to others for `seconds`."""
        self._abstains_until = self._clock.monotonic() + seconds

    @property
    def holders_annotations(self) -> Mapping[str, str]:
        """The holder's annotations on the Lease; empty without a holder."""
        return self._seen_annotations if self.holder else {}

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
        """Take the Lease when it is free and call `lead`, which is cancelled when the Lease is lost.

        When `lead` returns, the Lease is released and the election starts over. An exception of `lead` is raised.
        Cancel this to stop: it releases the Lease once `lead` has ended, so that the next holder need not wait.
        """
        while True:
            while not self.holds():
                await self._attempt_within(self._terms.renew)
                if not self.holds():
                    await self._clock.sleep(self._pause())
            _log.info("acquired the Lease", lease=self._name, identity=self._identity)
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
        _log.warning("lost the Lease", lease=self._name, identity=self._identity, holder=self.holder)

    async def _attempt_within(self, seconds: float) -> None:
        """Try once, and log a failure; the caller tries again later."""
        try:
            if await first_of(self.attempt(), self._clock.sleep(seconds)) != 0:
                raise NoAnswer(f"no answer within {seconds:g} s")
            self.trouble = ""
        except KubeError as error:
            self.trouble = str(error)
            _log.warning("cannot take or renew the Lease, retrying", lease=self._name, error=str(error))

    async def attempt(self) -> None:
        """Try once to take or renew the Lease. Raises KubeError, and then nothing has changed."""
        if not self.holds():
            await self._look()
        if not self._is_ours_or_free() or self._clock.monotonic() < self._abstains_until:
            return
        if not self._is_alive():
            _log.warning("not asking for the Lease: the main event loop does not respond", lease=self._name)
            return
        began = self._clock.monotonic()
        try:
            written = await self._write()
        except AlreadyExists:
            return
        except (Conflict, NotFound) as error:
            if isinstance(error, NotFound) and not self._version:
                raise  # the namespace is missing
            await self._look()
            if self._seen is not None and self._seen.holder_identity != self._identity:
                self._until = -math.inf
            return
        self._see(written)
        self._until = began + self._terms.renew

    async def release(self) -> None:
        """Release the Lease if we hold it. We stop leading before anybody else can start."""
        if not self.holds():
            return
        self._until = -math.inf
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            async with asyncio.timeout(self._terms.retry):
                await self._give_back(spec)
        except (KubeError, TimeoutError) as error:
            _log.warning("cannot release the Lease; it expires by itself", lease=self._name, error=str(error))

    async def _give_back(self, spec: dict[str, Any]) -> None:
        try:
            self._see(await self._patch(spec))
        except Conflict:  # our last renewal may have arrived after we stopped waiting for its answer
            await self._look()
            if self._seen is not None and self._seen.holder_identity == self._identity:
                self._see(await self._patch(spec))

    async def _look(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace, timeout=self._terms.renew)
        except NotFound:
            # its holder may still lead, so what we saw last still counts
            self._version = ""
        else:
            self._see(lease)

    def _see(self, lease: Lease) -> None:
        self._version = lease.metadata.resource_version
        self._seen_annotations = lease.metadata.annotations
        if lease.spec != self._seen:
            self._seen_at = self._clock.monotonic()  # set first: other threads may read both at any moment
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
        """Patch rather than PUT, to keep labels and other fields that others wrote."""
        body = {"metadata": {"annotations": self.annotations}, "spec": spec} if self.annotations else {"spec": spec}
        return await self._client.patch(LEASES, self._name, body, namespace=self._namespace, version=self._version)

    def _left(self) -> float:
        return max(0.0, self._until - self._clock.monotonic())

    def _pause(self) -> float:
        return self._terms.retry * random.uniform(1.0, _JITTER)

    def _now(self) -> str:
        return rfc3339(self._clock.wall_ns(), fraction=True)

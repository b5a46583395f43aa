"""The work queue: every change of an object queues it and all its owners."""

import asyncio
from typing import Protocol

import structlog

from aliquot.apiserver.eventlog import StoreEvent
from aliquot.apiserver.objects import Object, key_of
from aliquot.apiserver.statuses import StatusError
from aliquot.clock import Clock, SystemClock, came
from aliquot.embedded.api.ownership import Place, controller_uid
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import PODS, RESOURCE_QUOTAS
from aliquot.embedded.controllers.deployments import DeploymentController
from aliquot.embedded.controllers.event_expiry import EventExpiry
from aliquot.embedded.controllers.jobs import JobController, OrphanedPods, tracked
from aliquot.embedded.controllers.namespaces import NamespaceController
from aliquot.embedded.controllers.replica_sets import ReplicaSetController
from aliquot.embedded.controllers.resource_quotas import ResourceQuotaController
from aliquot.embedded.controllers.stateful_sets import StatefulSetController

_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0
_MAX_DOUBLINGS = 6
_log = structlog.get_logger()


class Controller(Protocol):
    """Reconciles one kind of object. It never awaits, so it sees a consistent state of the cluster."""

    collection: str

    def sync(self, obj: Object) -> float | None:
        """Reconcile the object. Returns the seconds after which to requeue it. Raises StatusError."""


class Controllers:
    """Runs all controllers. They write to the registry directly, so injected faults do not reach them."""

    def __init__(self, registry: Registry, clock: Clock | None = None) -> None:
        self._store = registry.store
        self._clock = clock or SystemClock()
        kinds: tuple[Controller, ...] = (
            DeploymentController(registry),
            ReplicaSetController(registry),
            StatefulSetController(registry),
            ResourceQuotaController(registry),
            JobController(registry),
            OrphanedPods(registry),
            EventExpiry(registry),
            NamespaceController(registry),
        )
        self._controllers = {controller.collection: controller for controller in kinds}
        self._due: dict[Place, None] = {}
        self._later: dict[Place, float] = {}
        self._refusals: dict[Place, int] = {}
        """How often it failed in a row."""
        self._wake = asyncio.Event()
        for collection in self._controllers:
            for stored in self._store.snapshot(collection):
                self._add((collection, key_of(stored.obj)))
        self._store.on_change(self._noted)

    def _noted(self, collection: str, event: StoreEvent) -> None:
        obj = event.stored.obj
        owner = self._store.find(controller_uid(obj))
        above = owner
        while above is not None and above[0] in self._controllers:
            self._add(above)
            held = self._store.get(*above)
            above = self._store.find(controller_uid(held.obj)) if held is not None else None
        if collection == PODS.collection:
            self._add_quotas(key_of(obj)[0])
        orphaned = collection == PODS.collection and owner is None and tracked(obj)
        if orphaned or (collection in self._controllers and collection != PODS.collection):
            self._add((collection, key_of(obj)))

    def _add_quotas(self, namespace: str) -> None:
        for quota in self._store.snapshot(RESOURCE_QUOTAS.collection):
            if key_of(quota.obj)[0] == namespace:
                self._add((RESOURCE_QUOTAS.collection, key_of(quota.obj)))

    def _add(self, place: Place) -> None:
        self._due[place] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            while self._due:
                place = next(iter(self._due))
                del self._due[place]
                self._sync(place)
                await asyncio.sleep(0)
            if not self._later:
                await self._wake.wait()
            elif not await came(self._wake, min(self._later.values()) - self._clock.monotonic(), self._clock):
                self._take_up()

    def _take_up(self) -> None:
        now = self._clock.monotonic()
        for place in [place for place, moment in self._later.items() if moment <= now]:
            del self._later[place]
            self._due[place] = None

    def _sync(self, place: Place) -> None:
        self._later.pop(place, None)
        stored = self._store.get(*place)
        refusals = self._refusals.pop(place, 0)
        if stored is None:
            return
        try:
            seconds = self._controllers[place[0]].sync(stored.obj)
        except StatusError as error:
            _log.warning("a controller was refused", object=place, error=error.message)
            seconds = min(_FIRST_RETRY_SECONDS * 2**refusals, _LONGEST_RETRY_SECONDS)
            self._refusals[place] = min(refusals + 1, _MAX_DOUBLINGS)
        if seconds is not None:
            self._later[place] = self._clock.monotonic() + max(0.0, seconds)

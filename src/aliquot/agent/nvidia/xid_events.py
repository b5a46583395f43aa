"""Critical errors (XIDs) that the driver reports about cards as they happen."""

import ctypes
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pynvml
import structlog

from aliquot.agent.devices import CardError
from aliquot.agent.nvidia.card import Card
from aliquot.agent.nvidia.session import DRIVER_GONE, Handle, Session, if_known

_log = structlog.get_logger()

_WAIT_SECONDS = 1.0
"""While it waits, NVML cannot be initialised again."""
_MOST_EVENTS = 100
"""At once: a program that fails again and again reports faster than anybody can judge."""
_NO_INSTANCE = 0xFFFFFFFF


class XidEvent(CardError):
    """An XID error of a card or a MIG instance."""


class XidEvents:
    """The XID errors of those cards that answer. `cards` are the cards that answered last."""

    def __init__(self, session: Session, cards: Callable[[], Collection[Card]]) -> None:
        self._session = session
        self._nvml = session.nvml
        self._answering = cards
        self._known: dict[str, Card] = {}
        self._session_number = 0
        self._set: Any = None
        self._uuids: dict[int, str] = {}
        """The uuids of registered cards by the address of their handle: a card that reports that it is lost no longer
        tells its uuid."""
        self._unsupported: set[str] = set()
        self._pause = threading.Event()

    def wait(self, seconds: float) -> Sequence[XidEvent]:
        """The next events, none if none comes within `seconds`. Blocks."""
        while True:
            part = min(seconds, _WAIT_SECONDS)
            with self._session.kept(part) as is_initialised:
                found = self._events(part) if is_initialised else ()
            seconds -= part
            if found or seconds <= 0:
                return found

    def _events(self, seconds: float) -> Sequence[XidEvent]:
        try:
            self._register()
            if self._uuids:
                return [xid for event in self._received(seconds) for xid in self._about(event)]
        except pynvml.NVMLError as error:
            _log.warning("waiting for XID events failed; trying again", error=str(error))
            self._forget()
            if error.value in DRIVER_GONE:
                self._session.distrust()
        self._pause.wait(seconds)
        return ()

    def _register(self) -> None:
        """Let the event set know every card that answers."""
        if self._session.number != self._session_number:
            self._session_number = self._session.number
            self._set, self._uuids = None, {}
        if self._set is None:
            self._set = self._nvml.nvmlEventSetCreate()
        for card in self._answering():
            self._known[card.uuid] = card
            if card.uuid not in self._uuids.values() and card.uuid not in self._unsupported:
                self._register_card(card)

    def _register_card(self, card: Card) -> None:
        wanted = pynvml.nvmlEventTypeXidCriticalError
        try:
            if if_known(wanted, self._nvml.nvmlDeviceGetSupportedEventTypes, card.handle) & wanted:
                self._nvml.nvmlDeviceRegisterEvents(card.handle, wanted, self._set)
                self._uuids[_address(card.handle)] = card.uuid
                return
        except pynvml.NVMLError as error:
            if error.value in DRIVER_GONE:
                raise
            if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
                return
        self._unsupported.add(card.uuid)
        _log.warning("a card reports no XID events; only reading it tells that it fails", uuid=card.uuid)

    def _received(self, seconds: float) -> Sequence[Any]:
        """The next event, and those that have come with it."""
        events: list[Any] = []
        try:
            while len(events) < _MOST_EVENTS:
                events.append(self._nvml.nvmlEventSetWait(self._set, 0 if events else int(seconds * 1000)))
        except pynvml.NVMLError as error:
            if not events and error.value != pynvml.NVML_ERROR_TIMEOUT:
                raise
        return events

    def _about(self, event: Any) -> Iterator[XidEvent]:
        """An event of a MIG instance is about the instance if it is known, else about the card."""
        uuid = self._uuid(event.device)
        card = self._known.get(uuid)
        hit = [
            instance.gpu.uuid
            for instance in (card.instances if card else ())
            if event.gpuInstanceId == instance.gpu_instance
            and event.computeInstanceId in (instance.compute_instance, _NO_INSTANCE)
        ]
        for each in hit or [uuid]:
            yield XidEvent(each, event.eventData)

    def _uuid(self, handle: Handle) -> str:
        """The card of an event, empty if nobody knows it. NVML does not promise that an event has the handle with which
        its card was registered."""
        if known := self._uuids.get(_address(handle)):
            return known
        with suppress(pynvml.NVMLError, ValueError):
            return str(self._nvml.nvmlDeviceGetUUID(handle))
        return ""

    def _forget(self) -> None:
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._set)
        self._set, self._uuids = None, {}


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0

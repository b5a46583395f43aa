"""Reads the cards from the driver, at the start and again and again: cards fail, return, appear and go."""

import structlog

from aliquot.agent.devices import DeviceSource, Machine
from aliquot.agent.off_loop import off_loop
from aliquot.clock import Clock
from aliquot.errors import NoDriver
from aliquot.signals import Signal

_log = structlog.get_logger()

READ_SECONDS = 5.0
"""How often the cards are read."""


class CardReader:
    def __init__(self, devices: DeviceSource, clock: Clock, every: float = READ_SECONDS) -> None:
        self._devices = devices
        self._clock = clock
        self._every = every
        self.missing = ""
        """Why there is no card, empty if there are some."""
        self.read: Signal[Machine | None] = Signal()
        """Emitted after each read: what the driver shows, None while there is no driver."""

    async def first(self) -> Machine:
        """The cards, as soon as there are any. Says once why there are none."""
        while (machine := await self._read()) is None:
            await self._clock.sleep(self._every)
        return machine

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._every)
            self.read.emit(await self._read())

    async def _read(self) -> Machine | None:
        try:
            machine = await off_loop(self._devices.read)
        except NoDriver as error:
            if str(error) != self.missing:
                _log.warning("no card to serve; the agent waits for one", why=str(error))
            self.missing = str(error)
            return None
        if self.missing:
            _log.info("the driver shows its cards", cards=len(machine.gpus))
        self.missing = ""
        return machine

"""The errors that the driver reports about cards, as they come."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from aliquot.agent.devices import CardError, DeviceSource
from aliquot.agent.off_loop import start

_WAIT_SECONDS = 5.0


class CardErrors:
    """Lives as long as the process: no error is lost while the agent starts again for other labels."""

    def __init__(self, devices: DeviceSource) -> None:
        self._devices = devices
        self._call: Future[Sequence[CardError]] | None = None

    async def wait(self) -> Sequence[CardError]:
        """The next errors, none if none comes for a while. A caller that is cancelled leaves its call, with whatever it
        returns, to the next caller."""
        if self._call is None:
            self._call = start(lambda: self._devices.wait_for_events(_WAIT_SECONDS))
        found = await asyncio.wrap_future(self._call)
        self._call = None
        return found

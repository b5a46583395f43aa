"""API server reachability, known within seconds: an open watch can be silent for minutes."""

from typing import NoReturn

from aliquot.clock import Clock
from aliquot.kube import Client, KubeError
from aliquot.racing import first_of

_EACH_SECONDS = 1.0
_ANSWER_SECONDS = 2.0


class ApiContact:
    """Both times together stay well below the 5 s within which a loss must show."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.trouble = ""
        """Why the API server is unreachable; empty while it answers, and before the first call."""

    async def run(self) -> NoReturn:
        while True:
            try:
                late = await first_of(self._client.reach(), self._clock.sleep(_ANSWER_SECONDS))
            except KubeError as error:
                self.trouble = str(error)
            else:
                self.trouble = f"the API server has not answered for {_ANSWER_SECONDS:g} s" if late else ""
            await self._clock.sleep(_EACH_SECONDS)

"""Events of the agent about its Node and pods. One that cannot be written is logged, and stops nothing."""

import structlog

from aliquot.clock import Clock
from aliquot.kube import Client, KubeError
from aliquot.kube.event_recorder import EventRecorder
from aliquot.model import Node, Pod

_log = structlog.get_logger()
_COMPONENT = "aliquot-agent"
LONGEST_MESSAGE = 1000
"""Events take 1,024 characters."""


class AgentEvents:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._recorder = EventRecorder(client, clock, _COMPONENT)

    async def write(self, about: Node | Pod, reason: str, message: str, *, kind: str = "Warning") -> None:
        try:
            await self._recorder.write(about, kind=kind, reason=reason, message=message[:LONGEST_MESSAGE])
        except KubeError as error:
            _log.warning("cannot write an event", about=about.key, message=message, error=str(error))

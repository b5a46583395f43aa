"""The load of the past: the last hour from memory, more from Prometheus if there is one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from aliquot.clock import Clock, seconds_of
from aliquot.control.inputs.load_history import LENGTH, PERIOD, HistoryPoint, LoadHistory, UseHistory
from aliquot.control.inputs.prometheus import Prometheus
from aliquot.errors import NoAnswerFromPrometheus
from aliquot.model import Pod

_log = structlog.get_logger()
HOUR = LENGTH * PERIOD


@dataclass(frozen=True)
class SourcedHistory:
    """`source` is memory or prometheus."""

    history: UseHistory
    source: str


class PastLoad:
    def __init__(
        self, memory: LoadHistory, pod_with: Callable[[str], Pod | None], clock: Clock, prometheus: str = ""
    ) -> None:
        self._memory = memory
        self._pod_with = pod_with
        self._clock = clock
        self._prometheus = Prometheus(prometheus) if prometheus else None
        self.trouble = ""
        """Why Prometheus gave no answer the last time."""

    async def close(self) -> None:
        if self._prometheus is not None:
            await self._prometheus.close()

    def notes(self) -> list[str]:
        return [f"load is known for the last hour only: {self.trouble}"] if self.trouble else []

    def asks_prometheus(self, seconds: float) -> bool:
        return self._prometheus is not None and seconds > HOUR

    async def card(self, uuid: str, seconds: float = HOUR) -> SourcedHistory | None:
        """Of a card by its UUID, for the last so many seconds; None if nothing is known."""
        now = self._now()
        recent = _since(now - seconds, self._memory.card(uuid))
        if self._prometheus is None or seconds <= HOUR:
            return _of_memory(recent)
        return await self._asked(self._prometheus.card(uuid, now - seconds, now), recent)

    async def pod(self, uid: str, seconds: float = HOUR) -> SourcedHistory | None:
        """Of a pod by its UID. An earlier pod of the same name does not count."""
        pod, now = self._pod_with(uid), self._now()
        recent = _since(now - seconds, self._memory.pod(uid))
        if self._prometheus is None or seconds <= HOUR or pod is None:
            return _of_memory(recent)
        meta = pod.metadata
        since = max(now - seconds, seconds_of(meta.creation_timestamp) or 0.0)
        return await self._asked(self._prometheus.pod(meta.namespace, meta.name, since, now), recent)

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9

    async def _asked(
        self, answer: Awaitable[tuple[HistoryPoint, ...]], recent: UseHistory | None
    ) -> SourcedHistory | None:
        """What memory has if Prometheus has nothing."""
        try:
            samples = await answer
        except NoAnswerFromPrometheus as error:
            if str(error) != self.trouble:
                _log.warning("cannot read the load of the past", why=str(error))
            self.trouble = str(error)
            return _of_memory(recent)
        self.trouble = ""
        if not samples:
            return _of_memory(recent)
        idle_since = recent.idle_since if recent is not None else None
        return SourcedHistory(UseHistory(samples[0].at, samples, idle_since), "prometheus")


def _since(begin: float, recent: UseHistory | None) -> UseHistory | None:
    """The part of a history after that time."""
    if recent is None:
        return None
    samples = tuple(sample for sample in recent.samples if sample.at + PERIOD > begin)
    return replace(recent, samples=samples) if samples else None


def _of_memory(recent: UseHistory | None) -> SourcedHistory | None:
    return SourcedHistory(recent, "memory") if recent is not None else None

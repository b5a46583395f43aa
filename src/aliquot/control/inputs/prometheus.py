"""Load of the past from a Prometheus that scrapes the agents."""

import asyncio
from typing import Annotated, Literal

import msgspec

from aliquot.control.inputs.load_history import PERIOD, HistoryPoint
from aliquot.errors import NoAnswerFromPrometheus
from aliquot.kube import NotSent
from aliquot.kube.http import HttpClient
from aliquot.model.bounds import LARGEST_HISTORY
from aliquot.plain import why

_SECONDS = 5.0
_OK = 200
_POINTS = 240
"""Samples of an answer: as many as a picture in a terminal or a small panel can show."""


class _Series(msgspec.Struct):
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: Annotated[list[_Series], msgspec.Meta(max_length=16)] = []


class _Answer(msgspec.Struct):
    status: Literal["success"]
    data: _Data = msgspec.field(default_factory=_Data)


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url
        self._http = HttpClient(url, None)

    async def close(self) -> None:
        await self._http.close()

    async def card(self, uuid: str, since: float, until: float) -> tuple[HistoryPoint, ...]:
        """Raises NoAnswerFromPrometheus."""
        chosen = f"{{uuid={_quoted(uuid)}}}"
        cores, memory = f"aliquot_card_cores_busy_ratio{chosen}", f"aliquot_card_memory_used_bytes{chosen}"
        return await self._uses(f"max({cores})", f"max({memory})", since, until)

    async def pod(self, namespace: str, name: str, since: float, until: float) -> tuple[HistoryPoint, ...]:
        """The same of all pods of this name in that time."""
        chosen = f"{{namespace={_quoted(namespace)},pod={_quoted(name)}}}"
        cores, memory = f"aliquot_container_cores_busy_ratio{chosen}", f"aliquot_container_memory_used_bytes{chosen}"
        return await self._uses(f"sum({cores})", f"sum({memory})", since, until)

    async def _uses(self, cores: str, memory: str, since: float, until: float) -> tuple[HistoryPoint, ...]:
        busy, used = await asyncio.gather(*(self._range(query, since, until) for query in (cores, memory)))
        return tuple(HistoryPoint(at, busy.get(at), int(used.get(at, 0))) for at in sorted({*busy, *used}))

    async def _range(self, query: str, since: float, until: float) -> dict[float, float]:
        step = max(PERIOD, (until - since) / _POINTS)
        asked = {"query": query, "start": f"{since:.3f}", "end": f"{until:.3f}", "step": f"{step:.3f}"}
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._http.request("GET", "api/v1/query_range", query=asked, headers={}) as answer,
            ):
                text = await answer.read(LARGEST_HISTORY)
            if answer.status != _OK:
                raise NoAnswerFromPrometheus(f"{self._url} answers with status {answer.status}")
            series = msgspec.json.decode(text, type=_Answer).data.result
            return {at: float(value) for each in series for at, value in each.values}
        except NotSent as error:
            raise NoAnswerFromPrometheus(f"{self._url} cannot be reached: {error.__cause__ or error}") from error
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise NoAnswerFromPrometheus(f"{self._url} gives no answer that can be used: {why(error)}") from error


def _quoted(text: str) -> str:
    """As a string of PromQL."""
    return msgspec.json.encode(text).decode()

"""The stream of a watch: splits it into lines, and gives up when no data arrives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import aiohttp

from aliquot.kube import errors
from aliquot.model.bounds import LONGEST_LINE


class Silence:
    """Closes a response after so many seconds without data.

    aiohttp can do this, too, but moves a timer for every chunk. This one checks once the time is over.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._response = response
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)
        self.was_too_long = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def __str__(self) -> str:
        return f"the API server has sent no data in a watch for {self._seconds:g} s"

    def end(self) -> None:
        self._heard = self._loop.time()

    def _look(self) -> None:
        left = self._heard + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.was_too_long = True
            self._response.close()


async def lines(response: aiohttp.ClientResponse, silence: Silence) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length: aiohttp's own reader gives up at 128 KiB."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in _chunks(response, silence):
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            yield b"".join((*pieces, piece)) if pieces else piece
            pieces, size = [], 0
        if rest:
            pieces.append(rest)
            size += len(rest)
        if size > LONGEST_LINE:
            raise errors.NoAnswer("the API server sent a watch event that is too long")


async def _chunks(response: aiohttp.ClientResponse, silence: Silence) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            silence.end()
            yield chunk
    except aiohttp.ClientError as error:
        raise (errors.NoAnswer(str(silence)) if silence.was_too_long else error) from error

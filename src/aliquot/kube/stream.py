"""The stream of a watch: splits it into lines, and gives up when no data arrives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from aliquot.kube import errors
from aliquot.kube.http import Answer
from aliquot.model.bounds import LONGEST_LINE


class Silence:
    """Closes an answer after so many seconds without data.

    It moves no timer when data arrives, but checks once the time is over.
    """

    def __init__(self, answer: Answer, seconds: float) -> None:
        self._answer = answer
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
            self._answer.close()


async def lines(answer: Answer, silence: Silence) -> AsyncIterator[bytes]:
    """The lines of a stream. Raises NoAnswer for one that is longer than any object."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in _chunks(answer, silence):
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            yield b"".join((*pieces, piece)) if pieces else piece
            pieces, size = [], 0
        if rest:
            pieces.append(rest)
            size += len(rest)
        if size > LONGEST_LINE:
            raise errors.NoAnswer("the API server sent a watch event that is too long")


async def _chunks(answer: Answer, silence: Silence) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.pieces():
            silence.end()
            yield chunk
    except OSError as error:
        raise (errors.NoAnswer(str(silence)) if silence.was_too_long else error) from error

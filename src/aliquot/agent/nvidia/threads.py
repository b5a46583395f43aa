"""A thread for each card: a call that never returns stops no other card, and not the end of the process either."""

from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from aliquot.agent.off_loop import start

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Failure:
    """Why a call has no result, with NVML's number for it. A call that has not returned has no number."""

    why: str
    code: int | None = None


Wait = Callable[[Collection[Future[Any]]], object]
"""Returns when all calls have returned, or when it has waited long enough."""


def at_most(seconds: float) -> Wait:
    return lambda calls: wait(calls, timeout=seconds)


class Threads:
    """Calls on threads, at most one for each name."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self._calls: dict[Any, Future[Any]] = {}

    @property
    def are_busy(self) -> bool:
        return not all(call.done() for call in self._calls.values())

    def ask(self, calls: Mapping[_K, Callable[[], _T]]) -> dict[_K, _T | Failure]:
        """The results of all calls. A name whose earlier call has not returned is not asked again."""
        started = {name: start(call) for name, call in calls.items() if self._is_free(name)}
        self._calls.update(started)
        self._wait(started.values())
        answers: dict[_K, _T | Failure] = dict.fromkeys(calls, _NO_ANSWER)
        for name, call in started.items():
            result: _T | Failure = _result(call)
            answers[name] = result
        return answers

    def _is_free(self, name: Hashable) -> bool:
        return name not in self._calls or self._calls[name].done()


_NO_ANSWER = Failure("it does not answer")


def _result(call: Future[_T]) -> _T | Failure:
    if not call.done():
        return _NO_ANSWER
    try:
        return call.result()
    except pynvml.NVMLError as error:
        return Failure(str(error), error.value)
    except (ValueError, ArithmeticError) as error:  # a card that fails may answer anything
        return Failure(f"it answers what cannot be read: {error}")

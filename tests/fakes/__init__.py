"""Fakes at the seams: time, the API server, the container runtime. Nothing inside is ever patched."""

from tests.fakes.api import (
    Embedded,
    Fault,
    Next,
    ScriptedApi,
    Seen,
    answer,
    body,
    cut_after,
    cut_before,
    held,
    late,
    stream,
)
from tests.fakes.clock import SECONDS, BusyClock, FakeClock, hurried, until
from tests.fakes.runtime import FakeRuntime

__all__ = [
    "Embedded",
    "BusyClock",
    "FakeClock",
    "FakeRuntime",
    "Fault",
    "Next",
    "SECONDS",
    "ScriptedApi",
    "Seen",
    "answer",
    "body",
    "cut_after",
    "cut_before",
    "held",
    "hurried",
    "late",
    "stream",
    "until",
]

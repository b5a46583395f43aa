"""Fault points: a test ends a process where it wants to see what survives."""

import signal
import sys

import pytest

from aliquot import faults
from tests.integration.cli.command import run, started

REACH = (sys.executable, "-c", "from aliquot import faults; [faults.reach(p) for p in faults.POINTS]; print('alive')")


async def test_without_the_variable_nothing_happens() -> None:
    ended = await run(command=REACH)
    assert (ended.code, ended.out) == (0, "alive\n")


async def test_a_chosen_point_ends_the_process_at_once() -> None:
    ended = await run(command=REACH, ALIQUOT_FAULT="in-prestart")
    assert (ended.code, ended.out) == (-signal.SIGKILL, "")


async def test_another_point_is_passed() -> None:
    command = (sys.executable, "-c", "from aliquot import faults; faults.reach('after-claim'); print('alive')")
    ended = await run(command=command, ALIQUOT_FAULT="after-filter")
    assert (ended.code, ended.out) == (0, "alive\n")


async def test_an_unknown_point_is_refused_at_the_start_with_those_that_there_are() -> None:
    ended = await run(command=REACH, ALIQUOT_FAULT="nowhere")
    assert ended.code == 1
    assert ended.err.startswith(
        f"ALIQUOT_FAULT=nowhere: unknown fault point; valid points are {', '.join(faults.POINTS)}"
    )


async def test_a_process_can_be_stopped_at_a_point_and_goes_on_when_it_is_continued() -> None:
    async with started(*REACH, ALIQUOT_FAULT="after-claim:stop") as process:
        await process.is_stopped()
        ended = await process.stop(signal.SIGCONT)
    assert (ended.code, ended.out) == (0, "alive\n")


@pytest.mark.parametrize("point", faults.POINTS)
def test_points_that_are_not_chosen_let_the_process_live(point: faults.Point) -> None:
    faults.reach(point)

"""Log lines of our own and of libraries have one form."""

import json
import sys

from tests.integration.cli.command import run

SPEAK = """
import logging
import structlog
from aliquot import logs
logs.configure("info")
logs.configure({level!r})
structlog.get_logger().debug("ours, quiet", pod="a/b")
structlog.get_logger().warning("ours", pod="a/b")
logging.getLogger("uvicorn.error").info("theirs, quiet")
logging.getLogger("uvicorn.error").warning("theirs %s", "too")
"""

OVER_A_PICTURE = """
import io
import structlog
from rich.console import Console
from rich.live import Live
from aliquot import logs
logs.configure("error")
terminal = io.StringIO()
with Live("the frame", console=Console(file=terminal, force_terminal=True, width=80), auto_refresh=False) as screen:
    screen.update("the frame", refresh=True)
    structlog.get_logger().error("something broke")
print(terminal.getvalue(), end="")
"""


async def spoken(level: str) -> list[dict[str, str]]:
    ended = await run(command=(sys.executable, "-c", SPEAK.format(level=level)))
    assert (ended.code, ended.out) == (0, "")
    return [json.loads(line) for line in ended.err.splitlines()]


async def test_libraries_speak_in_our_form_and_only_of_what_matters() -> None:
    ours, theirs = await spoken("warning")
    assert (ours["event"], ours["level"], ours["pod"]) == ("ours", "warning", "a/b")
    assert (theirs["event"], theirs["level"]) == ("theirs too", "warning")
    assert ours.keys() >= {"timestamp"} <= theirs.keys()


async def test_the_level_can_change_and_no_line_comes_twice() -> None:
    assert [line["event"] for line in await spoken("debug")] == ["ours, quiet", "ours", "theirs too"]
    assert await spoken("error") == []


async def test_a_line_comes_above_a_live_picture_and_not_into_it() -> None:
    ended = await run(command=(sys.executable, "-c", OVER_A_PICTURE))
    assert (ended.code, ended.err) == (0, "")
    assert "something broke" in ended.out
    assert ended.out.rindex("the frame") > ended.out.index("something broke")

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

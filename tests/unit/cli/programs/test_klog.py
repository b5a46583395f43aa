"""klog's log files and lines."""

import getpass
import io
import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.typing import Processor

from aliquot.app.programs.command_line import CommandLine
from aliquot.app.programs.klog_files import KlogFiles
from aliquot.app.programs.klog_flags import KLOG_FLAGS, KlogSettings, klog_settings
from aliquot.app.programs.klog_lines import klog_form
from aliquot.errors import BadConfig

NOON = datetime(2026, 5, 4, 12, 30, 1)
INFO, WARNING, ERROR = range(3)


def files(folder: Path, stderr: io.StringIO | None = None, **settings: Any) -> KlogFiles:
    wanted = KlogSettings(to_stderr=False, folder=str(folder), **settings)
    return KlogFiles("prog", wanted, now=lambda: NOON, stderr=stderr or io.StringIO())


def without_heading(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[:1] in "IWE" and line[1:2] == ":"]


def test_the_flags_without_a_word_are_klog_s_defaults() -> None:
    assert klog_settings(CommandLine("prog", "", KLOG_FLAGS).parse([])) == KlogSettings()


def test_each_severity_has_a_file_that_has_the_higher_ones_too(tmp_path: Path) -> None:
    with files(tmp_path) as log:
        for severity, line in enumerate(("I: a\n", "W: b\n", "E: c\n")):
            log.write(severity, line)
    found = {name: without_heading(tmp_path / f"prog.{name}") for name in ("INFO", "WARNING", "ERROR")}
    assert found == {"INFO": ["I: a", "W: b", "E: c"], "WARNING": ["W: b", "E: c"], "ERROR": ["E: c"]}


def test_a_file_is_named_by_program_machine_user_severity_time_and_process(tmp_path: Path) -> None:
    with files(tmp_path) as log:
        log.write(INFO, "I: a\n")
    host = socket.gethostname()
    name = f"prog.{host.partition('.')[0]}.{getpass.getuser()}.log.INFO.20260504-123001.{os.getpid()}"
    assert (tmp_path / "prog.INFO").readlink() == Path(name)
    heading = f"Log file created at: 2026/05/04 12:30:01\nRunning on machine: {host}\nBinary: Built with "
    assert (tmp_path / name).read_text().startswith(heading)


@pytest.mark.parametrize(
    ("settings", "severity", "expected"),
    [
        pytest.param({}, WARNING, "", id="below the threshold"),
        pytest.param({}, ERROR, "line\n", id="at the threshold"),
        pytest.param({"stderr_threshold": 1}, WARNING, "line\n", id="at another threshold"),
        pytest.param({"also_to_stderr": True}, INFO, "line\n", id="both"),
    ],
)
def test_what_goes_to_standard_error_beside_files(
    tmp_path: Path, settings: dict[str, Any], severity: int, expected: str
) -> None:
    stderr = io.StringIO()
    with files(tmp_path, stderr, **settings) as log:
        log.write(severity, "line\n")
    assert stderr.getvalue() == expected


def test_one_output_writes_a_line_once(tmp_path: Path) -> None:
    with files(tmp_path, one_output=True, skip_headings=True) as log:
        log.write(ERROR, "E: c\n")
        log.write(INFO, "I: a\n")
    assert (tmp_path / "prog.INFO").read_text() == "I: a\n"
    assert (tmp_path / "prog.ERROR").read_text() == "E: c\n"


def test_a_full_file_is_changed_for_a_new_one_and_the_link_follows(tmp_path: Path) -> None:
    line = "x" * 2**19 + "\n"
    with files(tmp_path, file_mb=1, skip_headings=True) as log:
        for _ in range(5):
            log.write(INFO, line)
    whole = [path for path in tmp_path.iterdir() if not path.is_symlink()]
    assert sorted(path.stat().st_size for path in whole) == [len(line), 2 * len(line), 2 * len(line)]
    assert (tmp_path / "prog.INFO").stat().st_size == len(line)


def test_one_file_takes_everything_goes_on_after_a_start_and_keeps_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    path.write_text("before\n")
    with files(Path("/gone"), file=str(path), file_mb=1, skip_headings=True) as log:
        log.write(INFO, "I: a\n")
        log.write(ERROR, "x" * 2**20)
        log.write(WARNING, "W: b\n")
    assert path.read_text() == "W: b\n"
    assert path.with_name("all.log.1").read_text().startswith("before\nI: a\nx")


def test_a_full_file_that_cannot_be_renamed_grows_on(tmp_path: Path) -> None:
    path, stderr = tmp_path / "all.log", io.StringIO()
    path.with_name("all.log.1").mkdir()
    with files(tmp_path, stderr, file=str(path), file_mb=1, skip_headings=True) as log:
        log.write(INFO, "x" * 2**20 + "\n")
        log.write(INFO, "I: a\n")
        log.write(INFO, "I: b\n")
    assert path.read_text().endswith("x\nI: a\nI: b\n")
    assert stderr.getvalue() == ""


def test_lines_are_in_the_file_after_the_flush_time(tmp_path: Path) -> None:
    with files(tmp_path, flush_seconds=0.01, skip_headings=True) as log:
        log.write(INFO, "I: a\n")
        waiting = threading.Event()
        while (tmp_path / "prog.INFO").read_text() != "I: a\n":
            waiting.wait(0.01)


def test_a_full_disk_costs_lines_their_place_and_nothing_else() -> None:
    stderr = io.StringIO()
    line = "x" * 2**20 + "\n"
    with files(Path("/gone"), stderr, file="/dev/full", skip_headings=True) as log:
        log.write(INFO, line)
    assert stderr.getvalue() == f"log: No space left on device: {line}"


def test_a_folder_that_cannot_be_written_is_told_at_the_start() -> None:
    with pytest.raises(BadConfig, match="log files cannot be written to the folder /gone"), files(Path("/gone")):
        pass


# -- lines


@pytest.fixture
def spoken() -> Callable[..., list[str]]:
    """The lines of a logger with klog's form, made and dropped without touching everybody's."""

    def speak(*events: tuple[str, str, dict[str, Any]], **settings: Any) -> list[str]:
        stderr = io.StringIO()
        wanted = KlogSettings(**settings)
        form = klog_form(wanted, KlogFiles("prog", wanted, stderr=stderr))
        shared: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
        logger = structlog.wrap_logger(
            form.taker(),
            processors=[*shared, *form.before, form.render],
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        )
        for level, text, fields in events:
            getattr(logger, level)(text, **fields)
        return stderr.getvalue().splitlines()

    return speak


Speaker = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("level", "letter"), [("debug", "I"), ("info", "I"), ("warning", "W"), ("error", "E"), ("critical", "E")]
)
def test_a_line_begins_with_its_severity_and_says_where_it_is_from(spoken: Speaker, level: str, letter: str) -> None:
    (line,) = spoken((level, "text", {}), verbosity=4)
    assert line[0] == letter
    assert " test_klog.py:" in line
    assert line.endswith('] "text"')


def test_fields_are_written_as_klog_writes_structures(spoken: Speaker) -> None:
    fields = {"pod": 'a/"b"', "count": 3, "ok": True, "cards": ["x", "y"], "why": {"a": 1}, "path": Path("/x")}
    (line,) = spoken(("info", "text", fields), skip_headers=True)
    assert line == '"text" pod="a/\\"b\\"" count=3 ok=true cards=["x","y"] why={"a":1} path="/x"'


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, ["info"], id="0"),
        pytest.param({"verbosity": 3}, ["info"], id="3"),
        pytest.param({"verbosity": 4}, ["info", "debug"], id="4"),
        pytest.param({"verbosity": 8}, ["info", "debug"], id="8"),
        pytest.param({"verbosity": 9}, ["info", "debug", "body"], id="9"),
        pytest.param({"modules": (("test_klog", 9),)}, ["info", "debug", "body"], id="this file"),
        pytest.param({"modules": (("test_*", 4),)}, ["info", "debug"], id="a pattern"),
        pytest.param({"modules": (("other", 9),)}, ["info"], id="another file"),
        pytest.param({"modules": (("*/programs/test_klog", 4),)}, ["info", "debug"], id="a path"),
        pytest.param({"modules": (("test_klog", 1),), "verbosity": 4}, ["info", "debug"], id="never less"),
    ],
)
def test_the_verbosity_chooses_lines(spoken: Speaker, settings: dict[str, Any], expected: list[str]) -> None:
    events: Any = (("info", "info", {}), ("debug", "debug", {}), ("debug", "body", {"v": 9}))
    assert spoken(*events, skip_headers=True, **settings) == [f'"{text}"' for text in expected]


def test_a_stack_trace_is_added_at_the_line_that_was_named(spoken: Speaker) -> None:
    (line,) = spoken(("info", "text", {}))
    number = int(line.partition("test_klog.py:")[2].partition("]")[0])
    traced = spoken(("info", "text", {}), backtrace_at=("test_klog.py", number))
    assert len(traced) > 1
    assert any("in speak" in line for line in traced)


def test_the_folder_is_named_if_wanted(spoken: Speaker) -> None:
    (line,) = spoken(("info", "text", {}), with_folder=True)
    assert " programs/test_klog.py:" in line


def test_an_exception_follows_its_line(spoken: Speaker) -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        lines = spoken(("error", "text", {"exc_info": error}))
    assert lines[-1] == "ValueError: odd"

"""klog's flags, log file and lines."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.typing import Processor

from aliquot.app.programs.command_line import CommandLine
from aliquot.app.programs.klog import KLOG_FLAGS, form, given
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig

LINE = CommandLine("prog", "", KLOG_FLAGS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["-v=3"], {"log.level": Given("info", "-v")}),
        (["-v=4"], {"log.level": Given("debug", "-v")}),
        (["-vmodule=a=1,b=9"], {"log.level": Given("debug", "-vmodule")}),
        (["-v=1", "-vmodule=a=2"], {"log.level": Given("info", "-v, -vmodule")}),
    ],
)
def test_the_level_is_given_if_a_flag_sets_it(words: list[str], expected: dict[str, Given]) -> None:
    assert given(LINE.parse(words)) == expected


def test_the_flags_that_have_no_effect_are_named() -> None:
    words = [
        "-v=4",
        "-logtostderr=false",
        "-log_file_max_size=1",
        "-one_output",
        "-skip_headers",
    ]
    assert [remark.partition(":")[0] for remark in LINE.parse(words).idle] == [
        "-log_file_max_size",
        "-one_output",
        "-skip_headers",
    ]
    assert LINE.parse(["-v=4", "-vmodule=a=1", "-logtostderr=false", "-log_dir=/tmp"]).idle == ()


@pytest.mark.parametrize("words", [["-log_dir=FOLDER"], ["-log_dir=/gone", "-log_file=FOLDER/prog.INFO"]])
def test_there_is_one_log_file(tmp_path: Path, words: list[str]) -> None:
    words = [word.replace("FOLDER", str(tmp_path)) for word in words]
    with form("prog", LINE.parse(["-logtostderr=false", *words])):
        assert [path.name for path in tmp_path.iterdir()] == ["prog.INFO"]


def test_the_file_takes_every_line_and_goes_on_after_a_start(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    path.write_text("before\n")
    with form("prog", LINE.parse(["-logtostderr=false", f"-log_file={path}"])) as made:
        logger = made.factory()
        logger.info("I: a\n")
        logger.warning("W: b\n")
        assert path.read_text() == "before\nI: a\nW: b\n", "written at once"


@pytest.mark.parametrize(
    ("words", "level", "expected"),
    [
        pytest.param([], "warning", "", id="below the threshold"),
        pytest.param([], "error", "line\n", id="at the threshold"),
        pytest.param([], "critical", "line\n", id="no less than an error"),
        pytest.param(["-stderrthreshold=1"], "warning", "line\n", id="at another threshold"),
        pytest.param(["-alsologtostderr"], "info", "line\n", id="both"),
    ],
)
def test_what_goes_to_standard_error_beside_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], level: str, expected: str
) -> None:
    path = tmp_path / "log"
    with form("prog", LINE.parse(["-logtostderr=false", f"-log_file={path}", *words])) as made:
        getattr(made.factory(), level)("line\n")
    assert (capsys.readouterr().err, path.read_text()) == (expected, "line\n")


def test_a_full_disk_costs_lines_their_place_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with form("prog", LINE.parse(["-logtostderr=false", "-log_file=/dev/full"])) as made:
        made.factory().info("line\n")
    assert capsys.readouterr().err == "log: No space left on device: line\n"


@pytest.mark.parametrize(
    ("word", "why"),
    [
        pytest.param("-log_dir=/gone", "/gone/prog.INFO cannot be written: there is no folder /gone", id="a folder"),
        pytest.param("-log_file=/", "/ cannot be written: it is a folder", id="a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_at_the_start(word: str, why: str) -> None:
    with pytest.raises(BadConfig, match=f"the log file {why}"), form("prog", LINE.parse(["-logtostderr=false", word])):
        pass


# -- lines


@pytest.fixture
def spoken(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The lines of a logger with klog's form, made and dropped without touching everybody's."""

    def speak(*events: tuple[str, str, dict[str, Any]], words: Sequence[str] = ()) -> list[str]:
        shared: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
        with form("prog", LINE.parse(words)) as made:
            logger = structlog.wrap_logger(
                made.factory(),
                processors=[*shared, *made.before, made.render],
                wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
            )
            for level, text, fields in events:
                getattr(logger, level)(text, **fields)
        return capsys.readouterr().err.splitlines()

    return speak


Speaker = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("level", "letter"), [("debug", "I"), ("info", "I"), ("warning", "W"), ("error", "E"), ("critical", "E")]
)
def test_a_line_begins_with_its_severity_and_says_where_it_is_from(spoken: Speaker, level: str, letter: str) -> None:
    (line,) = spoken((level, "text", {}), words=["-v=4"])
    assert line[0] == letter
    assert " test_klog.py:" in line
    assert line.endswith('] "text"')


def test_fields_are_written_as_klog_writes_structures(spoken: Speaker) -> None:
    fields = {"pod": 'a/"b"', "count": 3, "ok": True, "cards": ["x", "y"], "why": {"a": 1}, "path": Path("/x")}
    (line,) = spoken(("info", "text", fields))
    assert line.partition("] ")[2] == '"text" pod="a/\\"b\\"" count=3 ok=true cards=["x","y"] why={"a":1} path="/x"'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], ["info"], id="0"),
        pytest.param(["-v=3"], ["info"], id="3"),
        pytest.param(["-v=4"], ["info", "debug"], id="4"),
        pytest.param(["-v=8"], ["info", "debug"], id="8"),
        pytest.param(["-v=9"], ["info", "debug", "body"], id="9"),
        pytest.param(["-vmodule=test_klog=9"], ["info", "debug", "body"], id="this file"),
        pytest.param(["-vmodule=test_*=4"], ["info", "debug"], id="a pattern"),
        pytest.param(["-vmodule=other=9"], ["info"], id="another file"),
        pytest.param(["-vmodule=*/programs/test_klog=4"], ["info", "debug"], id="a path"),
        pytest.param(["-vmodule=test_klog=1", "-v=4"], ["info", "debug"], id="never less"),
    ],
)
def test_the_verbosity_chooses_lines(spoken: Speaker, words: list[str], expected: list[str]) -> None:
    events: Any = (("info", "info", {}), ("debug", "debug", {}), ("debug", "body", {"v": 9}))
    lines = spoken(*events, words=words)
    assert [line.partition("] ")[2] for line in lines] == [f'"{text}"' for text in expected]


def test_an_exception_follows_its_line(spoken: Speaker) -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        lines = spoken(("error", "text", {"exc_info": error}))
    assert lines[-1] == "ValueError: odd"

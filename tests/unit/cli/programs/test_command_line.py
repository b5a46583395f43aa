"""Command lines are read as Go's packages flag and pflag read them."""

from typing import Any

import pytest

from aliquot.app.programs.command_line import CommandLine, Flag, HelpWanted, WrongUsage
from aliquot.app.programs.values import BOOL, DURATION, LEVEL, MODULES, SEVERITY, SIZE, ValueKind

FLAGS = (
    Flag("name", "A text.", default="nobody"),
    Flag("log-dir", "A folder."),
    Flag("loud", "A switch.", BOOL),
    Flag("v", "A level.", LEVEL, "0", letter="v"),
)
GO = CommandLine("program", "What it does.", FLAGS)
GNU = CommandLine("program", "What it does.", FLAGS, gnu=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], {"name": "nobody", "loud": False, "v": 0, "log-dir": ""}, id="defaults"),
        pytest.param(["-name", "a"], {"name": "a"}, id="one dash"),
        pytest.param(["--name=a"], {"name": "a"}, id="two dashes and ="),
        pytest.param(["-name="], {"name": ""}, id="nothing after ="),
        pytest.param(["-name=a=b"], {"name": "a=b"}, id="a value with ="),
        pytest.param(["-loud", "-v", "4"], {"loud": True, "v": 4}, id="a switch alone"),
        pytest.param(["-loud=false"], {"loud": False}, id="a switch that is off"),
        pytest.param(["-loud=T"], {"loud": True}, id="a switch as Go reads it"),
        pytest.param(["-loud", "true", "-v=4"], {"loud": True, "v": 0}, id="a word ends the flags"),
        pytest.param(["--", "-v=4"], {"v": 0}, id="two dashes end the flags"),
        pytest.param(["-log_dir", "/x"], {"log-dir": "/x"}, id="_ is -"),
        pytest.param(["-name", "-v"], {"name": "-v", "v": 0}, id="a value that looks like a flag"),
        pytest.param(["-v=1", "-v=2"], {"v": 2}, id="the last one counts"),
    ],
)
def test_the_flag_package(words: list[str], expected: dict[str, Any]) -> None:
    found = GO.parse(words)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["--name", "a", "--v", "4"], {"name": "a", "v": 4}, id="two dashes"),
        pytest.param(["-v4"], {"v": 4}, id="a letter and its value"),
        pytest.param(["-v=4"], {"v": 4}, id="a letter and ="),
        pytest.param(["-v", "4"], {"v": 4}, id="a letter and a word"),
        pytest.param(["word", "--v=4"], {"v": 4}, id="words may stand between"),
        pytest.param(["--loud", "word"], {"loud": True}, id="a switch takes no word"),
        pytest.param(["--log_dir=/x"], {"log-dir": "/x"}, id="_ is -"),
        pytest.param(["--", "--v=4"], {"v": 0}, id="two dashes end the flags"),
    ],
)
def test_the_pflag_package(words: list[str], expected: dict[str, Any]) -> None:
    found = GNU.parse(words)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "words", "error"),
    [
        pytest.param(GO, ["-x"], "flag provided but not defined: -x", id="flag: unknown"),
        pytest.param(GO, ["--x=1"], "flag provided but not defined: -x", id="flag: unknown with two dashes"),
        pytest.param(GO, ["-name"], "flag needs an argument: -name", id="flag: no value"),
        pytest.param(GO, ["-v=a"], 'invalid value "a" for flag -v: it must be a whole number', id="flag: no number"),
        pytest.param(GO, ["-v4"], "flag provided but not defined: -v4", id="flag: no letters"),
        pytest.param(GO, ["---v"], "bad flag syntax: ---v", id="flag: three dashes"),
        pytest.param(GO, ["-=a"], "bad flag syntax: -=a", id="flag: no name"),
        pytest.param(GNU, ["--x"], "unknown flag: --x", id="pflag: unknown"),
        pytest.param(GNU, ["-x"], "unknown shorthand flag: 'x' in -x", id="pflag: an unknown letter"),
        pytest.param(GNU, ["-name=a"], "unknown shorthand flag: 'n' in -name=a", id="pflag: one dash is for letters"),
        pytest.param(GNU, ["--name"], "flag needs an argument: --name", id="pflag: no value"),
        pytest.param(GNU, ["--v="], 'invalid argument "" for "-v, --v" flag: it must be', id="pflag: no number"),
        pytest.param(GNU, ["--loud=so"], 'invalid argument "so" for "--loud" flag: it must be', id="pflag: no switch"),
    ],
)
def test_a_wrong_line_is_told_in_go_s_words(line: CommandLine, words: list[str], error: str) -> None:
    with pytest.raises(WrongUsage) as raised:
        line.parse(words)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
@pytest.mark.parametrize("line", [GO, GNU], ids=["flag", "pflag"])
def test_help_is_known_to_both(line: CommandLine, word: str) -> None:
    with pytest.raises(HelpWanted):
        line.parse([word])


def test_it_is_known_which_flags_were_said_and_how_and_what_belongs_to_none() -> None:
    found = GNU.parse(["one", "-v", "4", "--log_dir=/x", "two"])
    assert found.written == {"v": "-v", "log-dir": "--log_dir"}
    assert found.others == ("one", "two")


def test_the_usage_names_every_flag_its_kind_and_its_default() -> None:
    text = GNU.usage()
    assert text.startswith("What it does.\n\nUsage of program:\n")
    for piece in (
        "  --name string\n        A text. (default nobody)",
        "  --loud\n",
        "  -v, --v Level\n",
        "-h, --help",
    ):
        assert piece in text
    assert "\n  -name string\n" in GO.usage()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        pytest.param(DURATION, "5s", 5.0, id="seconds"),
        pytest.param(DURATION, "1m30s", 90.0, id="minutes and seconds"),
        pytest.param(DURATION, "0", 0.0, id="nothing"),
        pytest.param(DURATION, "1.5h", 5400.0, id="parts of hours"),
        pytest.param(SEVERITY, "2", 2, id="a severity's number"),
        pytest.param(SEVERITY, "warning", 1, id="a severity's name"),
        pytest.param(MODULES, "", (), id="no modules"),
        pytest.param(MODULES, "a=1,b*=2", (("a", 1), ("b*", 2)), id="two modules"),
        pytest.param(SIZE, "0", 0, id="a size"),
    ],
)
def test_values_are_read(kind: ValueKind, text: str, value: Any) -> None:
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DURATION, "5"),
        (DURATION, ""),
        (DURATION, "5 s"),
        (SEVERITY, "4"),
        (SEVERITY, "loud"),
        (MODULES, "a"),
        (MODULES, "a=b"),
        (SIZE, "-1"),
        (LEVEL, "1.5"),
    ],
)
def test_what_is_no_value_is_refused(kind: ValueKind, text: str) -> None:
    with pytest.raises(ValueError, match="it must be"):
        kind.read(text)

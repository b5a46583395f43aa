"""Scripts of pods on hollow nodes."""

import pytest

from aliquot.embedded.nodes import scripts
from aliquot.embedded.nodes.scripts import SCRIPT, BadScript, Script, read, script_of
from tests.factories import make_pod


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("runs 30s, uses 60%, then succeeds", Script(30, 60), id="all of it"),
        pytest.param("runs 1.5m, then fails", Script(90, exit_code=1), id="fails"),
        pytest.param("then fails with 137,runs 2h", Script(7200, exit_code=137), id="any order"),
        pytest.param("runs 5s", Script(5), id="no word about its end"),
        pytest.param("runs for ever, uses 10%", Script(uses=10), id="for ever"),
        pytest.param("uses 100%", Script(uses=100), id="only its use"),
        pytest.param("  runs   30s ,  uses 5% ", Script(30, 5), id="spaces"),
        pytest.param("runs 0s, then fails", Script(0, exit_code=1), id="at once"),
    ],
)
def test_a_script_says_how_long_how_much_and_how_it_ends(text: str, expected: Script) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "'' does not begin with one of runs, uses, then", id="empty"),
        pytest.param("sleep 30", "'sleep 30' does not begin with one of runs, uses, then", id="a command"),
        pytest.param("runs 30", "'runs 30' is not complete", id="no unit"),
        pytest.param("runs -3s", "'runs -3s' is not complete", id="negative"),
        pytest.param("runs 30s quickly", "'runs 30s quickly' is not complete, or says more", id="too much"),
        pytest.param("runs 30s, runs 40s", "it says 'runs' twice", id="twice"),
        pytest.param("uses 101%", "cannot be used for 101%", id="too busy"),
        pytest.param("then fails", "does not say how long it runs", id="no time"),
        pytest.param("runs for ever, then fails", "does not say how long it runs", id="an end to ever"),
        pytest.param("runs 9000h", "more than a year", id="too long"),
        pytest.param("runs 3s, then fails with 0", "0 is not the exit code of a failure", id="a failure that is none"),
        pytest.param("runs 3s, then fails with 256", "256 is not the exit code", id="no exit code"),
    ],
)
def test_a_script_that_cannot_be_followed_says_why_and_what_to_write(text: str, why: str) -> None:
    with pytest.raises(BadScript) as raised:
        read(text)
    assert why in str(raised.value)
    assert "write for example: runs 30s, uses 60%, then succeeds" in str(raised.value)
    assert SCRIPT in str(raised.value)


def test_the_examples_of_the_grammar_can_be_read() -> None:
    assert scripts.__doc__ is not None
    examples = [line.strip() for line in scripts.__doc__.splitlines() if line.startswith("    ")]
    assert len(examples) == 3
    for example in examples:
        read(example)


def test_a_pod_without_a_script_runs_for_ever() -> None:
    assert script_of(make_pod()) == Script()

"""--help and --version of every command."""

import click
import pytest
from click.testing import CliRunner

import aliquot
from aliquot.cli import main

COMMANDS = main.list_commands(click.Context(main))


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"aliquot, version {aliquot.__version__}\n")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_names_every_command(flag: str) -> None:
    result = CliRunner().invoke(main, [flag])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"\n  {command}" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_each_of_its_options(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    found = main.get_command(click.Context(main), command)
    assert found is not None
    assert found.help
    for argument in found.params:
        assert argument.human_readable_name in result.output or isinstance(argument, click.Option)
    for option in (given for given in found.params if isinstance(given, click.Option)):
        assert option.help, f"{option.name} has no help"
        assert option.opts[0] in result.output
    assert all(text.count("default:") <= 1 for text in result.output.split("\n  --")), "one default for each"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["fly"], "No such command 'fly'", id="an unknown command"),
        pytest.param(["server", "--fly"], "No such option", id="an unknown option"),
        pytest.param(["server", "--gpushare-port", "many"], "'many' is not a valid integer range", id="no number"),
        pytest.param(["server", "--gpushare-port", "70000"], "70000 is not in the range 0<=x<=65535", id="no port"),
        pytest.param(["server", "--log-level", "loud"], "'loud' is not one of", id="no log level"),
        pytest.param(["agent"], "Missing option '--node-name'", id="no node name"),
        pytest.param(["agent", "--node-name", "n", "--memory-unit", "KiB"], "'KiB' is not one of", id="no unit"),
        pytest.param(
            ["policies", "--namespace", "Bad NS"], "'Bad NS' is not a valid namespace name", id="no namespace"
        ),
        pytest.param(["demo", "--seconds", "0"], "0.0 is not in the range x>0", id="no time"),
        pytest.param(["demo", "more"], "Got unexpected extra argument (more)", id="an argument too many"),
    ],
)
def test_bad_options_are_named_and_nothing_is_started(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert text in result.output.splitlines()[-1]

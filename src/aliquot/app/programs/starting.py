"""What the programs share, whichever part of Aliquot they start: from an original's command line to keys."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import click
import structlog

from aliquot import logs
from aliquot.app.programs.command_line import CommandLine, HelpWanted, Parsed, WrongUsage
from aliquot.config.declaration import Given
from aliquot.config.flags import ConfiguredCommand, given, with_keys
from aliquot.config.keys import Setting
from aliquot.errors import BadConfig

_log = structlog.get_logger()


@dataclass(frozen=True)
class Translated:
    """A program's command line and variables, translated to keys of the configuration and a form of log lines."""

    given: Mapping[str, Given]
    form: AbstractContextManager[logs.Form | None] = field(default_factory=nullcontext)
    remarks: tuple[str, ...] = ()
    """Values that were given and have no effect, each with the reason."""
    defaults: Mapping[str, Given] = field(default_factory=dict)
    """Keys that our variables override. In a mapping, they override only the entries that they name."""


def parse(line: CommandLine, words: Sequence[str] | None) -> Parsed:
    """Parse these words, or those of this process. Ends the process if that fails, as Go's packages do."""
    try:
        return line.parse(sys.argv[1:] if words is None else words)
    except HelpWanted:
        click.echo(line.usage())
        sys.exit(0)
    except WrongUsage as error:
        click.echo(f"{error}\n{line.usage()}", err=True)
        sys.exit(2)


def say_what_has_no_effect(parsed: Parsed, translated: Translated) -> None:
    for remark in (*translated.remarks, *parsed.idle, *_remarks(parsed)):
        _log.warning("this has no effect", what=remark)


def overridden(defaults: Mapping[str, Given], variables: Mapping[str, Given]) -> dict[str, Given]:
    merged = {**defaults, **variables}
    for path in defaults.keys() & variables.keys():
        default, variable = defaults[path].value, variables[path]
        if isinstance(default, dict):
            merged[path] = replace(variable, value={**default, **variable.value})
    return merged


def variables(settings: Mapping[str, Setting]) -> dict[str, Given]:
    """Our own variables, read as `aliquot server` and `aliquot agent` read them. Raises BadConfig."""
    command = with_keys(settings)(ConfiguredCommand(None))
    for option in command.params:
        option.required = False
    try:
        return given(command.make_context("aliquot", []))
    except click.UsageError as error:
        raise BadConfig(error.format_message()) from error


def _remarks(parsed: Parsed) -> Iterator[str]:
    if parsed.others:
        yield f"ignored arguments: {' '.join(parsed.others)}"
    for variable in ("ALIQUOT_CONFIG", "ALIQUOT_CONFIG_MAP"):
        if os.environ.get(variable):
            yield f"{variable}: this program reads no configuration file; use its flags or the other ALIQUOT_ variables"
    if os.environ.get("THREADNESS"):
        yield "THREADNESS: Aliquot has no worker threads and handles each event at once"

"""A command whose options are the keys of the configuration."""

from typing import Any

import click
from click.core import ParameterSource

from aliquot.app.options import pairs
from aliquot.config import SETTINGS, Given, Setting, showing

_SOURCES = "Where the configuration comes from"


class KeyOption(click.Option):
    """The flag and the variable of one key. Its default is left to the configuration, which knows who else spoke."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        super().__init__(
            [setting.flag],
            type=_type(setting),
            multiple=setting.is_mapping,
            metavar=setting.key.pair or None,
            envvar=setting.variable,
            show_envvar=True,
            show_default=False,
            help=_help(setting),
        )


class Configured(click.Command):
    """Lists its options below the titles of their sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            title = option.setting.section.__doc__ if isinstance(option, KeyOption) else _SOURCES
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(title or "", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def keys(command: click.Command) -> click.Command:
    """Adds an option for every key; `given` says which were used."""
    command.params += [KeyOption(setting) for setting in SETTINGS.values()]
    return command


def given(ctx: click.Context) -> dict[str, Given]:
    """The keys that a flag or a variable names, by path. Raises BadConfig for a pair that is none."""
    found: dict[str, Given] = {}
    for option in (option for option in ctx.command.params if isinstance(option, KeyOption)):
        setting, name = option.setting, option.name or ""
        source = ctx.get_parameter_source(name)
        if source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            origin = setting.flag if source is ParameterSource.COMMANDLINE else f"${setting.variable}"
            value = ctx.params[name]
            found[setting.path] = Given(pairs(origin, value, setting.key.pair) if setting.is_mapping else value, origin)
    return found


def _help(setting: Setting) -> str:
    repeated = " May be repeated." if setting.is_mapping else ""
    return f"{setting.key.help}{repeated}  [default: {showing.default(setting)}]"


def _type(setting: Setting) -> click.ParamType[Any]:
    """What click itself can check; the configuration checks everything again."""
    limits = setting.limits
    if setting.choices:
        return click.Choice(setting.choices)
    if setting.type is int:
        return click.IntRange(int(limits.ge or 0), int(limits.le or 0))
    if setting.type is float:
        return click.FloatRange(limits.gt, limits.le, min_open=True)
    return click.BOOL if setting.type is bool else click.STRING

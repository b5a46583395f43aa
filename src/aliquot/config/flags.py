"""Click options for declared keys."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from aliquot.config import rendering
from aliquot.config.declaration import Given
from aliquot.config.keys import Setting
from aliquot.errors import BadConfig

_OTHERS = "Options"


class KeyOption(click.Option):
    """The flag and the variables of a key. The default is up to the declaration, which also knows the file."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        super().__init__(
            [setting.flag],
            type=_type(setting),
            multiple=setting.is_mapping or setting.is_list,
            metavar=setting.key.metavar or None,
            envvar=setting.variables,
            show_envvar=True,
            show_default=False,
            required=setting.key.is_required,
            help=_help(setting),
        )


class ConfiguredCommand(click.Command):
    """Lists its options by the titles of their sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            title = option.setting.section.__doc__ if isinstance(option, KeyOption) else _OTHERS
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(title or "", []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def with_keys(settings: Mapping[str, Setting]) -> Callable[[click.Command], click.Command]:
    """Add an option for every key to a command. `given` returns the ones that were used."""

    def add(command: click.Command) -> click.Command:
        command.params += [KeyOption(setting) for setting in settings.values()]
        return command

    return add


def given(ctx: click.Context) -> dict[str, Given]:
    """The keys that flags and variables set, by path. Raises BadConfig for a malformed NAME=VALUE."""
    found: dict[str, Given] = {}
    for option in (option for option in ctx.command.params if isinstance(option, KeyOption)):
        setting, name = option.setting, option.name or ""
        source = ctx.get_parameter_source(name)
        if source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            origin = setting.flag if source is ParameterSource.COMMANDLINE else f"${setting.variable}"
            value = ctx.params[name]
            if setting.is_mapping:
                value = pairs(origin, value, setting.key.metavar)
            found[setting.path] = Given(value, origin)
    return found


def pairs(origin: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Parse NAME=VALUE texts. Each name may occur once. Raises BadConfig that quotes the `form`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in found:
            raise BadConfig(f"{origin} {text}: write {form}, once per {form.partition('=')[0].lower()}")
        found[name] = value
    return found


def _help(setting: Setting) -> str:
    repeated = " May be repeated." if setting.is_mapping or setting.is_list else ""
    default = "" if setting.key.is_required else f"  [default: {rendering.default(setting)}]"
    return f"{setting.key.help}{repeated}{default}"


def _type(setting: Setting) -> click.ParamType[Any]:
    """What click itself can check. The declaration checks every value again."""
    limits = setting.limits
    if setting.choices:
        return click.Choice(setting.choices)
    if setting.type is int:
        return click.IntRange(int(limits.ge or 0), int(limits.le or 0))
    if setting.type is float:
        low = limits.gt if limits.ge is None else limits.ge
        return click.FloatRange(low, limits.le, min_open=limits.ge is None)
    return click.BOOL if setting.type is bool else click.STRING

"""The configuration for people: the values in effect with their origins, and the tables of keys for the documents."""

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from aliquot.config.declaration import Effective
from aliquot.config.keys import Setting


def effective(shown: Effective[Any]) -> str:
    """YAML that works as a configuration file, with the origin of each value in a comment."""
    return "\n".join(_lines(shown))


def _lines(shown: Effective[Any]) -> Iterator[str]:
    open_sections: list[str] = []
    for path, value in shown.values.items():
        *sections, name = path.split(".")
        for depth, section in enumerate(sections):
            if open_sections[depth : depth + 1] != [section]:
                open_sections = [*open_sections[:depth], section]
                yield f"{'  ' * depth}{section}:"
        yield f"{'  ' * len(sections)}{name}: {_inline(value)}  # {shown.origins[path]}"


def key_table(settings: Iterable[Setting]) -> str:
    """Keys of a configuration file as a table of the documents."""
    header = "| key | flag | variable | default | allowed | change | what |\n|---|---|---|---|---|---|---|\n"
    rows = (
        [f"`{setting.path}`", *_flag_cells(setting), "live" if setting.key.live else "restart", setting.key.help]
        for setting in settings
    )
    return header + "".join(map(_row, rows))


def flag_table(settings: Iterable[Setting]) -> str:
    """Keys that only flags and variables can set, as a table of the documents."""
    header = "| flag | variable | default | allowed | what |\n|---|---|---|---|---|\n"
    return header + "".join(_row([*_flag_cells(setting), setting.key.help]) for setting in settings)


def default(setting: Setting) -> str:
    """The default in words."""
    if setting.key.is_required:
        return "required"
    if setting.is_list:
        return ", ".join(setting.default)
    return setting.key.default or (_inline(setting.default) if setting.default not in ("", {}) else "none")


def _flag_cells(setting: Setting) -> list[str]:
    variables = ", ".join(f"`{variable}`" for variable in setting.variables)
    return [f"`{setting.flag}`", variables, default(setting), setting.allowed]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()

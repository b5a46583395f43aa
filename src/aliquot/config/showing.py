"""The configuration for people: what is in effect and who said so, and the table of every key."""

from collections.abc import Iterator
from typing import Any

import yaml

from aliquot.config.keys import Setting
from aliquot.config.reading import Effective
from aliquot.config.tree import SETTINGS


def effective(shown: Effective) -> str:
    """YAML that can be used as a file, with the origin of each value beside it."""
    return "\n".join(_lines(shown))


def _lines(shown: Effective) -> Iterator[str]:
    open_sections: list[str] = []
    for path, value in shown.values.items():
        *sections, name = path.split(".")
        for depth, section in enumerate(sections):
            if open_sections[depth : depth + 1] != [section]:
                open_sections = [*open_sections[:depth], section]
                yield f"{'  ' * depth}{section}:"
        yield f"{'  ' * len(sections)}{name}: {_inline(value)}  # {shown.origins[path]}"


def table() -> str:
    """Every key as a table of the documents."""
    header = "| key | flag | variable | default | allowed | change | what |\n|---|---|---|---|---|---|---|\n"
    return header + "".join(_row(setting) for setting in SETTINGS.values())


def _row(setting: Setting) -> str:
    cells = (
        f"`{setting.path}`",
        f"`{setting.flag}`",
        f"`{setting.variable}`",
        default(setting),
        setting.allowed,
        "live" if setting.key.live else "restart",
        setting.key.help,
    )
    return f"| {' | '.join(cells)} |\n"


def default(setting: Setting) -> str:
    return setting.key.default or (_inline(setting.default) if setting.default not in ("", {}) else "none")


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()

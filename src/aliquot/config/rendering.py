"""The configuration for people: the values in effect with their origins, and defaults in words."""

from collections.abc import Iterator
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


def default(setting: Setting) -> str:
    """The default in words."""
    if setting.key.is_required:
        return "required"
    if setting.is_list and setting.default:
        return ", ".join(setting.default)
    return setting.key.default or (_inline(setting.default) if setting.default not in ("", {}, ()) else "none")


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()

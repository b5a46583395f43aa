"""Configurations of the server for tests."""

from typing import Any

from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig


def server_config(**keys: Any) -> ServerConfig:
    """The defaults with some keys changed: `commit__budget=1.0` sets commit.budget."""
    defaults = {path: setting.default for path, setting in SERVER.settings.items()}
    changed = {name.replace("__", "."): value for name, value in keys.items()}
    assert changed.keys() <= defaults.keys(), changed
    return SERVER.tree_of(defaults | changed)

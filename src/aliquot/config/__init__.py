"""The configuration of `aliquot server`: one declaration, many ways to say it, followed while it runs."""

from aliquot.config.keys import Setting
from aliquot.config.live import Live
from aliquot.config.reading import Effective, Given, read
from aliquot.config.sources import File, Map, Nothing, Source
from aliquot.config.tree import SETTINGS, Configuration

__all__ = [
    "Configuration",
    "SETTINGS",
    "Setting",
    "Given",
    "Effective",
    "read",
    "Live",
    "Source",
    "File",
    "Map",
    "Nothing",
]

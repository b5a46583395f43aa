"""Deliberate differences between Aliquot's answers and those of the originals, and a switch for each."""

from dataclasses import dataclass

from aliquot.errors import BadConfig

ALL = "all"


@dataclass(frozen=True)
class Compat:
    """The quirks of its original that an endpoint reproduces. By default none."""

    maps: bool = False
    """List refused nodes in FailedNodes only."""
    bind_faults: bool = False
    """Answer a failed bind with HTTP 500, whose text kube-scheduler discards."""
    reasons: bool = False
    """Name the node or the pod in reasons, as the original does."""
    every_node: bool = False
    """Return every node that fits from a filter whose scheduler binds itself, and reserve nothing."""


OURS = Compat()

QUIRKS = {"maps": "maps", "bind-faults": "bind_faults", "reasons": "reasons", "every-node": "every_node"}
"""The fields of Compat by their names in the configuration."""


def parse(text: str) -> Compat:
    """Parse quirks separated by commas, or `all`. An empty text means none. Raises BadConfig."""
    words = {word for piece in text.split(",") if (word := piece.strip())}
    if unknown := sorted(words - {*QUIRKS, ALL}):
        raise BadConfig(f"unknown quirk {unknown[0]!r}; valid quirks are {', '.join(QUIRKS)} and {ALL}")
    return Compat(**{field: word in words or ALL in words for word, field in QUIRKS.items()})

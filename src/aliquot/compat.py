"""Where Aliquot's answers differ from the originals' on purpose, and the switch that turns each difference off."""

from dataclasses import dataclass

from aliquot.errors import BadConfig

ALL = "all"


@dataclass(frozen=True)
class Compat:
    """What one endpoint does exactly as its original did. Nothing, unless asked."""

    maps: bool = False
    """Refused nodes stand in FailedNodes only."""
    bind_faults: bool = False
    """A bind that fails is HTTP 500, whose text kube-scheduler throws away."""
    reasons: bool = False
    """Reasons name the node, or the pod, where the original's did."""


OURS = Compat()

QUIRKS = {"maps": "maps", "bind-faults": "bind_faults", "reasons": "reasons"}
"""The fields of Compat by the words that people write."""


def parse(text: str) -> Compat:
    """Words with commas between them, or `all`; nothing is none. Raises BadConfig that names the word."""
    words = {word for piece in text.split(",") if (word := piece.strip())}
    if unknown := sorted(words - {*QUIRKS, ALL}):
        raise BadConfig(f"{unknown[0]!r} is no quirk of an original; write {', '.join(QUIRKS)} or {ALL}")
    return Compat(**{field: word in words or ALL in words for word, field in QUIRKS.items()})

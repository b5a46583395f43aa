"""Labels for the node's cards, which the agent writes on its Node.

Others write such labels too: feature discovery, and people. The agent adds labels that are missing, and
changes only those that still have the value that it wrote.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.model import Node
from aliquot.model.records import CARD_LABELS


def changes(node: Node, wanted: Mapping[str, str]) -> Mapping[str, Any]:
    """The changes to the metadata of a Node that bring its labels up to date. Empty if there are none."""
    has = node.metadata.labels
    ours = {key for key, value in _written(node).items() if has.get(key) == value}
    mine = {key: value for key, value in wanted.items() if key not in has or key in ours}
    labels: dict[str, str | None] = {key: value for key, value in mine.items() if has.get(key) != value}
    labels |= dict.fromkeys(ours - mine.keys())
    record = msgspec.json.encode(mine, order="sorted").decode()
    if not labels and record == node.metadata.annotations.get(CARD_LABELS, "{}"):
        return {}
    return {"labels": labels, "annotations": {CARD_LABELS: record}}


def _written(node: Node) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(node.metadata.annotations.get(CARD_LABELS, "{}"), type=dict[str, str])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}

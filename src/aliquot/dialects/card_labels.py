"""What labels on a Node can say about its cards."""

import re

from aliquot.brands import BRANDS
from aliquot.model import NodeGpus, is_model

_LONGEST_LABEL = 63
_SERIES = frozenset(("RTX", "GTX", "TITAN"))
"""Words that name a model only together with the word after them."""


def only_model(cards: NodeGpus) -> str:
    """The model of all cards of a node. Empty if they differ."""
    models = {gpu.model for gpu in cards.gpus if not gpu.parent}
    return models.pop() if len(models) == 1 else ""


def short_model(model: str) -> str:
    """A model as people name it: `A100` for `NVIDIA A100-SXM4-40GB`. The whole name if the short one could mean another
    model."""
    words = [word for word in model.split() if word.casefold() not in BRANDS]
    if not words:
        return model
    name = " ".join(words[:2]) if words[0].upper() in _SERIES else words[0].split("-")[0]
    return name if is_model(name, model) else model


def label_value(text: str) -> str:
    """A text as the value of a label, which has letters, digits and `-_.` only."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:_LONGEST_LABEL].strip("-_.")

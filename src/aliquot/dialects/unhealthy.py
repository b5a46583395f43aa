"""Unhealthy cards as gpushare's users report them: ConfigMap `kube-system/unhealthy-gpu-<node>`, key `gpus`: "0,2"."""

from dataclasses import replace

from aliquot.dialects.protocol import plain_number
from aliquot.errors import BadRecord
from aliquot.model import NodeGpus
from aliquot.model.bounds import LARGEST_UNHEALTHY, require_size

NAMESPACE = "kube-system"
NAME_PREFIX = "unhealthy-gpu-"
KEY = "gpus"


def unhealthy_cards(text: str) -> frozenset[int]:
    """The indexes in the value. Anything else is ignored, so that it takes no healthy card away. Raises BadRecord if
    the text is too large for a list of a node's cards."""
    require_size(f"the key {KEY}", text, LARGEST_UNHEALTHY, BadRecord)
    numbers = (plain_number(item.strip()) for item in text.split(","))
    return frozenset(number for number in numbers if number is not None)


def without(cards: NodeGpus, indexes: frozenset[int]) -> NodeGpus:
    """The same node with these cards unhealthy: no new pods are placed there, running pods continue."""
    gpus = tuple(replace(gpu, healthy=gpu.healthy and gpu.index not in indexes) for gpu in cards.gpus)
    return replace(cards, gpus=gpus)

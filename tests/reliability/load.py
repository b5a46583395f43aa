"""A cluster to fill and the pods that fill it, as manifests; the same number gives the same ones."""

import random
from collections.abc import Iterator
from typing import Any

from tests.factories import T4, make_cards, node_manifest, pod_manifest

_CARDS = 8
_UNITS = 15
_LARGEST = 5


def nodes(count: int) -> list[dict[str, Any]]:
    """Of eight cards with 15 units each."""
    return [_node(f"load-{number:03}") for number in range(count)]


def _node(name: str) -> dict[str, Any]:
    made = node_manifest(name, make_cards(name, mib=(T4,) * _CARDS))
    made["metadata"]["labels"] = {"gpushare": "true"}
    return made


def pods(count: int, *, seed: int = 0, prefix: str = "load", namespace: str = "default") -> Iterator[dict[str, Any]]:
    """Of one to five units each: they fill a cluster of `nodes_for` nodes to four fifths."""
    chance = random.Random(seed)
    for number in range(count):
        name, units = f"{prefix}-{number:05}", chance.randint(1, _LARGEST)
        yield pod_manifest(name, units, namespace=namespace, schedulerName="gpu-scheduler")


def nodes_for(count: int) -> int:
    """How many nodes so many pods need, with a fifth left over for fragments."""
    return -(-count * (_LARGEST + 1) * 5 // (2 * 4 * _CARDS * _UNITS))

"""A pod of twelve containers that only a long search places, and nodes that are all filled in another way."""

import random
from collections.abc import Sequence
from typing import Any

from aliquot.model import Charge, ContainerRequest, Gpu, Memory, NodeGpus, Part, Placement, Request, Slice
from aliquot.model.records import INVENTORY, PLACEMENT, write_inventory, write_placement

CARDS = 8
MIB = 81920
SIZES = (
    (5, 17091, 15),
    (4, 11789, 23),
    (3, 14534, 5),
    (4, 13961, 19),
    (5, 4720, 11),
    (5, 956, 19),
    (4, 12136, 12),
    (4, 6322, 26),
    (5, 11746, 23),
    (6, 15425, 2),
    (5, 14393, 7),
    (6, 13483, 8),
)
"""Per container: cards, MiB and percent of each."""
FILL = 0.96


def hard_request(uid: str = "hard", pod: str = "default/hard", fill: float = FILL) -> Request:
    """`fill` makes the parts larger or smaller."""
    parts = (Part(cards, cores=cores, memory=Memory(int(mib * fill))) for cards, mib, cores in SIZES)
    containers = (ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    return Request(uid, pod, "aliquot", tuple(containers))


def hard_pod(name: str = "hard", namespace: str = "default", fill: float = FILL, **metadata: Any) -> dict[str, Any]:
    """The same as a manifest."""
    annotations = {}
    for place, (_, mib, cores) in enumerate(SIZES):
        annotations[f"cores.aliquot.io/c{place}"] = str(cores)
        annotations[f"memory.aliquot.io/c{place}"] = f"{int(mib * fill)}Mi"
    containers = [
        {"name": f"c{place}", "image": "app", "resources": {"limits": {"aliquot.io/gpu": str(cards)}}}
        for place, (cards, _, _) in enumerate(SIZES)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **metadata},
        "spec": {"containers": containers},
    }


def held_pod(node: str, card: int, mib: int) -> dict[str, Any]:
    """A pod that holds so much of one card."""
    part = Slice(f"GPU-{node}-{card}", card, card, 0, mib)
    record = write_placement(Placement(node, "aliquot", {"main": (part,)}))
    pod = small_pod(f"{node}-{card}", mib)
    pod["metadata"]["annotations"][PLACEMENT] = record
    pod["spec"]["nodeName"] = node
    return pod


def small_pod(name: str, mib: int = 100, namespace: str = "default") -> dict[str, Any]:
    """A pod that is easy to place."""
    limits = {"limits": {"aliquot.io/gpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"aliquot.io/memory": f"{mib}Mi"}},
        "spec": {"containers": [{"name": "main", "image": "app", "resources": limits}]},
    }


def cards_of(node: str, count: int = CARDS) -> NodeGpus:
    gpus = (Gpu(f"GPU-{node}-{card}", card, card, "NVIDIA A100-SXM4-80GB", MIB) for card in range(count))
    return NodeGpus(node, tuple(gpus), 1024)


def used_by_others(count: int, seed: int = 1) -> list[Sequence[int]]:
    """Per node and card the MiB of one other pod."""
    chance = random.Random(seed)
    return [[chance.randint(200, 3000) for _ in range(CARDS)] for _ in range(count)]


def charges_on(cards: NodeGpus, used: Sequence[int]) -> dict[str, Charge]:
    return {gpu.uuid: Charge(0, mib, shares=1) for gpu, mib in zip(cards.gpus, used, strict=True)}


def node_manifest(node: str, count: int = CARDS) -> dict[str, Any]:
    cards = cards_of(node, count)
    offered = {"cpu": "64", "aliquot.io/gpu": str(64 * count)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node,
            "annotations": {INVENTORY: write_inventory(cards)},
            "labels": {"dialect.aliquot.io/aliquot": "true"},
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }

"""Nodes with eight cards, a queue of pods for them, and how fast a scheduler empties it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from aliquot.model import Gpu, NodeGpus
from aliquot.model.records import INVENTORY, write_inventory
from bench.measuring import cpu_of
from tests.real.by_hand import Asking
from tests.real.objects import asking, ready_node
from tests.real.scheduler import Scheduling
from tests.rig.processes import Process

_CARDS = 8
_CARD_UNITS = 80
_POD_UNITS = 40
_PODS = "/api/v1/namespaces/default/pods"
_LONGEST_SECONDS = 600.0


@dataclass(frozen=True)
class Emptied:
    """Bindings a second from the first to the last, and seconds of CPU for each, by process."""

    rate: float
    cpu: Mapping[str, float]


def make_nodes(cluster: Scheduling, count: int) -> None:
    cluster.create(*(_node(f"node-{number:04}") for number in range(count)))


@contextmanager
def queued(cluster: Scheduling, count: int) -> Iterator[None]:
    """Pods that wait for a scheduler; gone in the end."""
    with closing(Asking(cluster.api.url)) as ask:
        for number in range(count):
            ask("POST", _PODS, asking(f"p{number:04}", {"aliyun.com/gpu-mem": _POD_UNITS}))
    try:
        yield
    finally:
        with closing(Asking(cluster.api.url)) as ask:
            ask("DELETE", f"{_PODS}?gracePeriodSeconds=0")


def emptied(cluster: Scheduling, pods: int, config: Mapping[str, Any], *measured: Process) -> Emptied:
    """Start kube-scheduler on a queue that stands, and follow it to the last Binding."""
    with _changes(cluster) as changes:
        cluster.schedule(config)
        processes = [cluster.scheduler, *measured]
        bound: set[str] = set()
        for pod in changes:
            if pod["spec"].get("nodeName"):
                if not bound:
                    began, before = time.monotonic(), [cpu_of(each.pid) for each in processes]
                bound.add(pod["metadata"]["name"])
                if len(bound) == pods:
                    break
        seconds, after = time.monotonic() - began, [cpu_of(each.pid) for each in processes]
    cluster.scheduler.stop()
    spent = {each.name: (end - start) / pods for each, start, end in zip(processes, before, after, strict=True)}
    return Emptied((pods - 1) / seconds, spent)


@contextmanager
def _changes(cluster: Scheduling) -> Iterator[Iterator[Any]]:
    """Of pods, from now on."""
    with closing(Asking(cluster.api.url)) as ask:
        version = ask("GET", f"{_PODS}?limit=1")["metadata"]["resourceVersion"]
    with closing(HTTPConnection(urlsplit(cluster.api.url).netloc, timeout=_LONGEST_SECONDS)) as connection:
        connection.request("GET", f"{_PODS}?watch=true&resourceVersion={version}")
        yield (msgspec.json.decode(line)["object"] for line in connection.getresponse())


def _node(name: str) -> dict[str, Any]:
    gpus = (Gpu(f"GPU-{name}-{card}", card, card, "A100", _CARD_UNITS * 1024) for card in range(_CARDS))
    inventory = write_inventory(NodeGpus(name, tuple(gpus), 1024))
    resources = {"aliyun.com/gpu-mem": _CARDS * _CARD_UNITS, "aliyun.com/gpu-count": _CARDS}
    return ready_node(name, resources, annotations={INVENTORY: inventory})

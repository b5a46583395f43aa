"""The official client's SharedInformer: one list without pages, then a watch, each kind in a thread of its own."""

import threading
from typing import Any

from kubernetes.informer import ADDED, MODIFIED, SharedInformer

from bench.mirroring.listener import Meter, Result
from bench.mirroring.official import api


def listen(url: str, events: int) -> Result:
    core = api(url)
    meter = Meter()
    heard = 0
    enough = threading.Event()

    def synced(_: Any) -> None:
        """Its cache is filled before the first object is told."""
        pods.remove_event_handler(ADDED, synced)
        meter.synced()
        if not events:
            enough.set()

    def count(_: Any) -> None:
        nonlocal heard
        heard += 1
        if heard >= events:
            enough.set()

    nodes = _informer(core.list_node)
    known = threading.Event()
    nodes.add_event_handler(ADDED, lambda _: known.set())
    nodes.start()
    known.wait()
    pods = _informer(core.list_pod_for_all_namespaces)
    pods.add_event_handler(ADDED, synced)
    pods.add_event_handler(MODIFIED, count)
    pods.start()
    enough.wait()
    return meter.heard(len(nodes.cache.list()), len(pods.cache.list()), events)


def _informer(call: Any) -> Any:
    return SharedInformer(call)  # type: ignore[no-untyped-call]

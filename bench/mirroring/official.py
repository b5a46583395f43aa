"""The official client, as its users follow a cluster: lists in pages, then a watch, into dicts of its models."""

from typing import Any

from kubernetes import client, watch

from bench.mirroring.listener import Meter, Result


def api(url: str) -> Any:
    return client.CoreV1Api(client.ApiClient(client.Configuration(host=url)))


def listen(url: str, events: int) -> Result:
    core = api(url)
    meter = Meter()
    nodes: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    _list(core.list_node, nodes)
    version = _list(core.list_pod_for_all_namespaces, pods)
    meter.synced()
    if events:
        follower: Any = watch.Watch()  # type: ignore[no-untyped-call]
        changes = follower.stream(core.list_pod_for_all_namespaces, resource_version=version)
        for _ in range(events):
            changed = next(changes)["object"]
            pods[_key(changed)] = changed
    return meter.heard(len(nodes), len(pods), events)


def _list(call: Any, into: dict[str, Any]) -> str:
    token = None
    while True:
        page = call(limit=500, **({"_continue": token} if token else {}))
        into.update((_key(item), item) for item in page.items)
        token = page.metadata._continue
        if not token:
            return str(page.metadata.resource_version)


def _key(item: Any) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"

"""What Aliquot writes for a pod from its creation until it runs, counted by an embedded API server."""

import tempfile
from collections import Counter
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.machines import Machine
from aliquot.embedded import EmbeddedCluster
from aliquot.kube import PODS

_MACHINES = [Machine(f"n{number}", ("NVIDIA A100-SXM4-80GB",) * 2, ("gpushare",), has_agent=True) for number in (1, 2)]
_UNITS = 10


async def writes_of(pods: int) -> Counter[str]:
    """By kind, of so many pods. The writes of kubelet and of the scheduler do not count: in a cluster they are
    Kubernetes' own."""
    writes: Counter[str] = Counter()

    @web.middleware
    async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method in ("POST", "PATCH", "PUT") and (kind := _ours(request.path)):
            writes[kind] += 1
        return await handler(request)

    with tempfile.TemporaryDirectory(prefix="alq-") as folder:
        demo = DemoCluster(Path(folder), _MACHINES)
        demo.cluster = EmbeddedCluster(middlewares=[counting])
        async with demo:
            writes.clear()
            for number in range(pods):
                await demo.client.create(PODS, _pod(number), "default")
            names = {f"pod-{number}" for number in range(pods)}
            await demo.until(lambda: names <= _running(demo))
            created = Counter({"pods": pods})
            return writes - created


def _ours(path: str) -> str:
    """The kind of write; empty for kubelet's and the scheduler's."""
    piece = path.split("/")
    if piece[-1] == "binding":
        return "bindings"
    if piece[-1] == "status" or "events" in piece or "leases" in piece:
        return ""
    return piece[piece.index("pods")] if "pods" in piece else ""


def _pod(number: int) -> dict[str, object]:
    limits = {"aliyun.com/gpu-mem": str(_UNITS)}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    metadata = {"name": f"pod-{number}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _running(demo: DemoCluster) -> set[str]:
    return {pod.metadata.name for pod in demo.plane.pods.all() if pod.status.phase == "Running"}

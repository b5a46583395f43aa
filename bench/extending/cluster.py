"""The embedded API server with a half-full cluster, as a process of its own. When it can be asked, the kubeconfig is
there."""

import argparse
import asyncio
from pathlib import Path

from aliquot.embedded.api.resources import NAMESPACES
from aliquot.embedded.cluster import EmbeddedCluster
from bench.extending import half_full


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int)
    parser.add_argument("kubeconfig", type=Path)
    arguments = parser.parse_args()
    async with EmbeddedCluster(log_capacity=1024, controllers=False) as cluster:
        cluster.registry.create(NAMESPACES, "", {"metadata": {"name": "aliquot-system"}})
        for number, node in enumerate(half_full.nodes(arguments.nodes)):
            cluster.store.put("nodes", node)
            for pod in half_full.pods_on(node, number):
                cluster.store.put("pods", pod)
        cluster.write_kubeconfig(arguments.kubeconfig)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())

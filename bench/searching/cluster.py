"""The embedded API server with nodes that are all filled in another way, as a process of its own. When it can be asked,
the kubeconfig is there."""

import argparse
import asyncio
from pathlib import Path

from aliquot.embedded.api.resources import NAMESPACES, NODES, PODS
from aliquot.embedded.cluster import EmbeddedCluster
from bench.searching.pods import held_pod, node_manifest, used_by_others


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int)
    parser.add_argument("kubeconfig", type=Path)
    arguments = parser.parse_args()
    async with EmbeddedCluster(controllers=False) as cluster:
        for namespace in ("aliquot-system", "greedy"):
            cluster.registry.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        for number, used in enumerate(used_by_others(arguments.nodes)):
            node = f"n{number:03}"
            cluster.registry.create(NODES, "", node_manifest(node))
            for card, mib in enumerate(used):
                cluster.registry.create(PODS, "default", held_pod(node, card, mib))
        cluster.write_kubeconfig(arguments.kubeconfig)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())

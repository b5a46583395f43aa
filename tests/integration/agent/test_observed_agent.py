"""The agent on a node that another vendor's plugin serves: it publishes and records, and offers nothing."""

from pathlib import Path
from typing import Any

from aliquot.embedded.api import resources
from aliquot.kube import Client
from aliquot.model.records import INVENTORY, OBSERVED, read_inventory, read_observed
from tests.factories import GPU_MEM, container_manifest, make_pod, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, until
from tests.integration.agent.test_agent import CARDS
from tests.integration.agent.test_node_dialects import label, make, offers, running
from tests.integration.agent.test_observing import GPU, VendorPlugin

UUIDS = [gpu.uuid for gpu in CARDS.gpus]


def shown(api: ScriptedApi, name: str = "") -> dict[str, str]:
    """The annotations of the node, or of a pod."""
    kept = api.registry.get(resources.PODS, "default", name) if name else api.registry.get(resources.NODES, "", "n1")
    found: dict[str, str] = kept.obj["metadata"].get("annotations", {})
    return found


def starts(api: ScriptedApi, name: str) -> Any:
    """A pod of this node whose container runs."""
    limits = {"resources": {"limits": {GPU: "1"}}}
    manifest = pod_manifest(name, node="n1", containers=[container_manifest("main", None, **limits)])
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    api.registry.create(resources.PODS, "default", manifest)
    return api.registry.rewrite(resources.PODS, "default", name, lambda pod: {**pod, "status": status}).obj


async def test_an_observing_agent_publishes_the_cards_and_who_has_them_and_offers_nothing(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    make(scripted, {OBSERVED: "true", "nodeinfo": "gpu"})
    async with running(folder, client, clock) as kubelet, VendorPlugin(kubelet, UUIDS):
        await until(lambda: INVENTORY in shown(scripted), "it publishes the cards", passing=clock)
        cards = read_inventory("n1", shown(scripted)[INVENTORY])
        assert (cards.observed, [gpu.uuid for gpu in cards.gpus]) == (True, UUIDS)
        pod = starts(scripted, "p")
        await kubelet.admit(make_pod("p", uid=pod["metadata"]["uid"], containers=pod["spec"]["containers"]))
        await until(lambda: OBSERVED in shown(scripted, "p"), "it records the pod's card", passing=clock)
        named = read_observed(pod["metadata"]["uid"], shown(scripted, "p")[OBSERVED])
        assert [*named] == ["main"]
        assert set(named["main"]) < set(UUIDS)
        assert kubelet.capacity() == {GPU: 2}


async def test_a_node_that_is_no_longer_observed_is_served(
    folder: Path, client: Client, scripted: ScriptedApi, clock: FakeClock
) -> None:
    make(scripted, {OBSERVED: "true", "gpushare": "true"})
    async with running(folder, client, clock) as kubelet:
        await until(lambda: INVENTORY in shown(scripted), "it publishes the cards", passing=clock)
        assert kubelet.capacity() == {}
        await label(client, **{OBSERVED: None})
        await offers(kubelet, clock, GPU_MEM)
        assert not read_inventory("n1", shown(scripted)[INVENTORY]).observed
        await label(client, **{OBSERVED: "true"})
        await offers(kubelet, clock)
        await until(lambda: read_inventory("n1", shown(scripted)[INVENTORY]).observed, passing=clock)

"""Several servers: any can be asked, the Lease's holder decides."""

import json
from pathlib import Path
from typing import Any

from aliquot.embedded.api import resources
from aliquot.model.records import EPOCH, PLACEMENT
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.cli.servers import (
    IMPATIENT,
    NAMESPACE,
    a_server,
    add_namespace,
    bind_call,
    filter_call,
    is_ready,
)


def a_pod(api: ScriptedApi, name: str) -> Any:
    return api.registry.create(resources.PODS, "default", pod_manifest(name)).obj


def annotations(api: ScriptedApi, name: str) -> dict[str, str]:
    found: dict[str, str] = api.registry.get(resources.PODS, "default", name).obj["metadata"]["annotations"]
    return found


async def test_a_server_that_does_not_lead_passes_calls_on_and_leads_when_the_holder_ends(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    add_namespace(scripted)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    first_pod, second_pod = a_pod(scripted, "first"), a_pod(scripted, "second")
    async with a_server(scripted, tmp_path, *IMPATIENT) as holder:
        await holder.process.says('"became the leader"')
        async with a_server(scripted, tmp_path, *IMPATIENT) as other:
            await is_ready(other)
            assert (await other.post("filter", {"Pod": first_pod, "NodeNames": ["n1"]}))["NodeNames"] == ["n1"]
            assert await other.post("bind", bind_call(first_pod)) == {"Error": ""}
            assert await other.metric('aliquot_forwarded_total{outcome="answered",verb="bind"}') == 1
            assert await holder.metric('aliquot_commits_total{outcome="bound"}') == 1
            assert annotations(scripted, "first")[PLACEMENT]
            ended = (await holder.process.stop()).clean()
            assert ended.code == 0, ended
            await other.process.says('"became the leader"')
            assert (await other.post("filter", filter_call(second_pod)))["NodeNames"] == ["n1"]
            assert await other.post("bind", bind_call(second_pod)) == {"Error": ""}
            assert await other.metric('aliquot_commits_total{outcome="bound"}') == 1
            (await other.process.stop()).clean()
    epochs = [int(annotations(scripted, name)[EPOCH]) for name in ("first", "second")]
    assert epochs == sorted(set(epochs)), "each term has a higher number"


async def test_a_holder_that_cannot_be_asked_is_named_to_the_scheduler(tmp_path: Path, scripted: ScriptedApi) -> None:
    add_namespace(scripted)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    pod = a_pod(scripted, "p")
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    nowhere = "http://127.0.0.1:1"
    endpoints = {"aliquot.io/endpoints": json.dumps({"gpushare": nowhere, "native": nowhere})}
    lease = {"metadata": {"name": "aliquot-server", "annotations": endpoints}, "spec": spec}
    scripted.registry.create(resources.LEASES, NAMESPACE, lease)
    async with a_server(scripted, tmp_path, *IMPATIENT) as server:
        await is_ready(server)
        why = "the leader somebody did not answer at http://127.0.0.1:1: "
        assert (await server.post("filter", {"Pod": pod, "NodeNames": ["n1"]}))["Error"].startswith(why)
        assert (await server.post("bind", bind_call(pod)))["Error"].startswith(why)
        assert await server.metric('aliquot_role{role="following"}') == 1
        (await server.process.stop()).clean()
    assert scripted.bindings() == []

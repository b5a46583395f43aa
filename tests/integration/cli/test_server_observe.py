"""Observe mode as a process: it reads, it tells, and it writes nothing."""

from pathlib import Path

from aliquot.embedded.api import resources
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.cli.servers import a_server, bind_call, is_ready


async def test_an_observer_tells_where_pods_would_go_and_never_writes(tmp_path: Path, scripted: ScriptedApi) -> None:
    cards = make_cards(mib=(15360,))
    scripted.registry.create(resources.NODES, "", node_manifest("n1", cards))
    pod = scripted.registry.create(resources.PODS, "default", pod_manifest("fits", 10)).obj
    scripted.registry.create(resources.PODS, "default", pod_manifest("large", 99))
    log = tmp_path / "decisions"
    async with a_server(scripted, tmp_path, "--mode", "observe", "--decision-log-file", str(log)) as server:
        await server.process.says('"mode": "observe"')
        await is_ready(server)
        await server.process.says('"pod": "default/large", "why": "0/1 nodes are available')
        await server.process.says('"pod": "default/fits", "node": "n1"')
        assert (await server.post("filter", {"Pod": pod, "NodeNames": ["n1"]}))["NodeNames"] == ["n1"]
        refused = (await server.post("bind", bind_call(pod)))["Error"]
        assert refused == "this server is in observe mode: it reads, and writes nothing"
        assert await server.metric('aliquot_role{role="observing"}') == 1
        ended = (await server.process.stop()).clean()
    assert ended.code == 0, ended
    assert scripted.writes() == []
    assert log.stat().st_size > 0
    assert {seen.method for seen in scripted.seen} == {"GET"}

"""A running server follows its configuration."""

from pathlib import Path

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from tests.fakes import ScriptedApi, answer
from tests.integration.cli.servers import NAMESPACE, a_server, add_namespace


async def test_a_changed_file_is_applied_and_what_waits_for_a_restart_is_named(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    add_namespace(scripted)
    path = tmp_path / "config.yaml"
    path.write_text("log: {level: info}")
    async with a_server(scripted, tmp_path, "--config", str(path)) as server:
        await server.process.says('"became the leader"')
        path.write_text("log: {level: debug}\nlease: {name: other}")
        await server.process.says('"now": {"log.level": "debug"}, "event": "the configuration changed"')
        await server.process.says('"keys": ["lease.name"], "event": "restart the server to apply new values"')
        assert await server.metric("aliquot_config_restart_needed") == 1
        assert "restart the server to apply new values of lease.name" in (await server.get("/readyz"))[1]
        (await server.process.stop()).clean()


async def test_a_file_that_is_broken_keeps_the_server_ready_with_the_last_good_one(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    add_namespace(scripted)
    path = tmp_path / "config.yaml"
    path.write_text("")
    async with a_server(scripted, tmp_path, "--config", str(path)) as server:
        await server.process.says('"became the leader"')
        assert await server.metric("aliquot_config_valid") == 1
        path.write_text("log: {level: loud}")
        await server.process.says("keeping the last valid one")
        status, text = await server.get("/readyz")
        assert status == 200, "its answers can be trusted as before"
        assert "the configuration is invalid, keeping the last valid one: log.level" in text
        assert await server.metric("aliquot_config_valid") == 0
        path.write_text("log: {level: debug}")
        await server.process.says("the configuration changed")
        assert await server.metric("aliquot_config_valid") == 1
        (await server.process.stop()).clean()


async def test_a_config_map_is_followed_while_the_server_runs(tmp_path: Path, scripted: ScriptedApi) -> None:
    add_namespace(scripted)
    write(scripted, "audit: {seconds: 60}")
    async with a_server(scripted, tmp_path, "--config-map", f"{NAMESPACE}/settings") as server:
        write(scripted, "audit: {seconds: 30}")
        await server.process.says('"now": {"audit.seconds": 30.0}')
        scripted.registry.delete(resources.CONFIG_MAPS, NAMESPACE, "settings", DeleteRequest())
        await server.process.says(f"ConfigMap {NAMESPACE}/settings was deleted")
        assert await server.metric("aliquot_config_valid") == 0
        write(scripted, "audit: {seconds: 20}")
        await server.process.says('"now": {"audit.seconds": 20.0}')
        assert await server.metric("aliquot_config_valid") == 1
        (await server.process.stop()).clean()


async def test_a_config_map_that_cannot_be_read_yet_is_waited_for(tmp_path: Path, scripted: ScriptedApi) -> None:
    add_namespace(scripted)
    write(scripted, "log: {level: debug}")
    scripted.script("GET", "configmaps/settings", answer(503))
    async with a_server(scripted, tmp_path, "--config-map", f"{NAMESPACE}/settings") as server:
        await server.process.says("became the leader")
        ended = (await server.process.stop()).clean()
    assert "cannot read the configuration, retrying" in ended.out


def write(api: ScriptedApi, text: str) -> None:
    """Make the ConfigMap, or change it."""
    body = {"metadata": {"name": "settings"}, "data": {"config.yaml": text}}
    if any(held.obj["metadata"]["name"] == "settings" for held in api.store.snapshot("configmaps")):
        api.registry.rewrite(resources.CONFIG_MAPS, NAMESPACE, "settings", lambda obj: {**obj, "data": body["data"]})
    else:
        api.registry.create(resources.CONFIG_MAPS, NAMESPACE, body)

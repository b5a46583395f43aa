"""`gpuserver` as its chart starts it: one TLS port, its Secret, its health route."""

import asyncio
import json
import ssl
import tomllib
from base64 import b64decode
from pathlib import Path

import aiohttp

from aliquot.embedded.api import resources
from tests.factories import make_cards, node_manifest
from tests.fakes import Embedded, ScriptedApi
from tests.integration.cli.command import LONGEST, started
from tests.integration.cli.programs import command
from tests.integration.cli.servers import kubeconfig

API = "/apis/metrics.nvidia.com/v1alpha1"
READ = [{"apiGroups": ["metrics.nvidia.com"], "resources": ["gpuinfos"], "verbs": ["list"]}]


async def test_it_serves_the_api_on_one_tls_port_with_a_secret_of_its_service_s_name(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    assert isinstance(scripted.behind, Embedded)
    scripted.behind.cluster.users.add("jane", token="jane", rules=READ)
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "gpus"}})
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    variables = {"MetadataName": "my-gpus-0", "MetadataNamespace": "gpus", "HOME": str(tmp_path)}
    access = kubeconfig(tmp_path, scripted.url)
    flags = ("--bind-address=127.0.0.1", "--secure-port=0", "--v=2")
    async with started(*command("gpuserver"), *flags, merged=True, KUBECONFIG=access, **variables) as process:
        await process.says("in sync with the API server")
        port = process.number('endpoint="nvidia" address="127.0.0.1" port=')
        (stored,) = (held.obj for held in scripted.store.snapshot("secrets"))
        assert (stored["metadata"]["namespace"], stored["metadata"]["name"]) == ("gpus", "my-gpus")
        trusted = b64decode(stored["data"]["ca-cert.pem"]).decode()
        context = ssl.create_default_context(cadata=trusted)
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:

            async def get(path: str, token: str = "") -> tuple[int, str]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                name = "my-gpus.gpus.svc"
                async with session.get(path, ssl=context, headers=headers, server_hostname=name) as response:
                    return response.status, await response.text()

            async with asyncio.timeout(LONGEST):
                while (answer := await get(f"{API}/gpuinfos", "jane"))[0] != 200:
                    await asyncio.sleep(0.02)
            assert json.loads(answer[1])["items"][0]["metadata"]["name"] == "n1"
            assert await get("/health?node=n1") == (200, "")
            assert (await get("/metrics"))[0] == 403
            assert (await get("/metrics", "jane"))[0] == 403
            assert (await get(f"{API}/podresources", "jane"))[0] == 403
        last = (await process.stop()).clean()
    assert last.code == 0
    assert sum("listening" in line for line in last.out.splitlines()) == 1, "no second port"


def test_both_programs_are_installed_by_their_original_s_names() -> None:
    scripts = tomllib.loads(Path("pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["gpuserver"] == "aliquot.app.programs.gpuserver:main"
    assert scripts["gpuserver-ds"] == "aliquot.app.programs.device_plugins.gpuserver_ds:main"

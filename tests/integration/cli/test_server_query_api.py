"""`aliquot server` with the query API: certificates of its own on the nvidia endpoint's port, shared by replicas."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from aliquot.embedded.api import resources
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import Embedded, ScriptedApi
from tests.integration.cli.command import LONGEST
from tests.integration.cli.servers import IMPATIENT, Server, a_server, add_namespace, check, filter_call

SERVICE, NAMESPACE = "nvidia-gpu-scheduler", "kube-system"
NAME = f"{SERVICE}.{NAMESPACE}.svc"
API = "/apis/metrics.nvidia.com/v1alpha1"
SCHEDULE = [{"apiGroups": ["metrics.nvidia.com"], "resources": ["schedule"], "verbs": ["create"]}]
LIST = [{"apiGroups": ["metrics.nvidia.com"], "resources": ["gpuinfos"], "verbs": ["get", "list", "watch"]}]
FLAGS = ("--query-api-enabled", "true", "--nvidia-enabled", "true", "--nvidia-port", "0", *IMPATIENT)

pytestmark = pytest.mark.embedded_only("the users and their tokens are the test's own")


@pytest.fixture
def embedded() -> Embedded:
    made = Embedded()
    made.cluster.users.add("system:kube-scheduler", token="scheduler", rules=SCHEDULE)
    made.cluster.users.add("jane", token="jane", rules=LIST)
    return made


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        add_namespace(running)
        running.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
        yield running


class Caller:
    """Trusts one CA, and has a token."""

    def __init__(self, session: aiohttp.ClientSession, trusted: str, server: Server) -> None:
        self._session = session
        self.context = ssl.create_default_context(cadata=trusted)
        self._url = f"https://127.0.0.1:{port_of(server)}"

    async def send(self, method: str, path: str, token: str = "", body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asking = self._session.request(
            method, self._url + path, json=body, headers=headers, ssl=self.context, server_hostname=NAME
        )
        async with asking as response:
            said = await response.text()
            return response.status, json.loads(said) if said.startswith("{") else said

    async def until_200(self, path: str, token: str = "") -> Any:
        async with asyncio.timeout(LONGEST):
            while (answer := await self.send("GET", path, token))[0] != 200:
                await asyncio.sleep(0.02)
        return answer[1]


def port_of(server: Server) -> int:
    return server.process.number('"nvidia", "address": "127.0.0.1", "port": ')


def trusted(api: ScriptedApi) -> str:
    """What the Secret says."""
    (stored,) = (held.obj for held in api.store.snapshot("secrets") if held.obj["metadata"]["name"] == SERVICE)
    return base64.b64decode(stored["data"]["ca-cert.pem"]).decode()


@asynccontextmanager
async def running(api: ScriptedApi, folder: Path, *flags: str) -> AsyncIterator[Server]:
    async with a_server(api, folder, *flags) as server:
        yield server
        (await server.process.stop()).clean()


async def test_replicas_share_a_certificate_and_forward_verbs(tmp_path: Path, scripted: ScriptedApi) -> None:
    pod = scripted.registry.create(resources.PODS, "default", pod_manifest("p")).obj
    async with (
        running(scripted, tmp_path, *FLAGS) as leader,
        aiohttp.ClientSession() as session,
    ):
        expires = await leader.metric("aliquot_tls_expires_timestamp_seconds")
        assert expires is not None
        assert expires - time.time() > 364 * 86400
        first = Caller(session, trusted(scripted), leader)
        await first.until_200("/readyz")
        async with running(scripted, tmp_path, *FLAGS) as follower:
            second = Caller(session, trusted(scripted), follower)
            await second.until_200("/readyz")
            for caller in (first, second):
                assert (await caller.until_200(f"{API}/gpuinfos", "jane"))["kind"] == "GpuInfoList"
                status, answer = await caller.send("POST", f"{API}/schedule/filter", "scheduler", filter_call(pod))
                assert status == 200, answer
                assert answer["NodeNames"] == ["n1"]
                assert (await caller.send("POST", f"{API}/schedule/filter", "jane", filter_call(pod)))[0] == 403
                assert (await caller.send("POST", f"{API}/schedule/filter", "", filter_call(pod)))[0] == 403
                for path in ("/health", "/livez"):
                    assert await caller.send("GET", path) == (200, "")
                assert (await caller.send("GET", "/metrics"))[0] == 403


async def test_missing_settings_of_the_api_server_are_noted(tmp_path: Path, scripted: ScriptedApi) -> None:
    async with running(scripted, tmp_path, *FLAGS) as server, aiohttp.ClientSession() as session:
        caller = Caller(session, trusted(scripted), server)
        async with asyncio.timeout(LONGEST):
            while "there is no ConfigMap kube-system/extension-apiserver" not in await caller.until_200("/readyz"):
                await asyncio.sleep(0.02)


async def test_given_files_are_served_and_no_secret_is_made(tmp_path: Path, scripted: ScriptedApi) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert(NAME)
    pair.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "tls.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    files = ("--tls-cert-file", str(tmp_path / "tls.pem"), "--tls-key-file", str(tmp_path / "tls.pem"))
    clients = ("--tls-client-ca-file", str(tmp_path / "ca.pem"))
    async with running(scripted, tmp_path, *FLAGS, *files, *clients) as server, aiohttp.ClientSession() as session:
        caller = Caller(session, authority.cert_pem.bytes().decode(), server)
        await caller.until_200("/readyz")
        assert (await caller.until_200(f"{API}/gpuinfos", "jane"))["kind"] == "GpuInfoList"
        for user, status in (("jane", 200), ("somebody", 403)):
            shown = Caller(session, authority.cert_pem.bytes().decode(), server)
            authority.issue_cert("client", common_name=user).configure_cert(shown.context)
            assert (await shown.send("GET", f"{API}/gpuinfos"))[0] == status, "a client CA of our own counts, too"
    assert not list(scripted.store.snapshot("secrets"))


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--nvidia-enabled", "false"), "queryApi.enabled: needs the port of endpoints.nvidia, which is disabled"),
        (("--query-api-ca-file", "ca.crt"), "queryApi.caFile: the server makes the certificate and knows its CA"),
        (("--query-api-api-services", "metrics"), "queryApi.apiServices: metrics is not a name of an APIService"),
        (
            ("--query-api-secret", "Not a name"),
            "queryApi.secret (--query-api-secret): 'Not a name' is not a valid",
        ),
    ],
)
async def test_contradictions_are_named(flags: tuple[str, ...], why: str) -> None:
    ended = await check("--query-api-enabled", "true", "--nvidia-enabled", "true", *flags)
    assert ended.code != 0
    assert why in ended.err


async def test_no_other_port_opens_to_the_world_by_it() -> None:
    """On every address, this port alone knows its callers without listen.tls."""
    closed = [f"--{name}-enabled=false" for name in ("admission", "gpushare", "elastic", "native")]
    own = ("--query-api-enabled", "true", "--nvidia-enabled", "true", "--address", "0.0.0.0")
    assert (await check(*own, *closed, "--health-port", "0")).code == 0
    ended = await check(*own, *closed[1:], "--admission-enabled=true", "--health-port", "0")
    assert "endpoints.admission.callers: other machines can reach 0.0.0.0" in ended.err
    assert "endpoints.nvidia" not in ended.err

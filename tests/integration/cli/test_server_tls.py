"""`aliquot server` with certificates: on every port, from replica to replica, and new ones under a running server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from aliquot.embedded.api import resources
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.cli.command import LONGEST
from tests.integration.cli.servers import IMPATIENT, Server, a_server, add_namespace, bind_call, check, filter_call

AUTHORITY = trustme.CA()
NAME = "aliquot-server.aliquot-system.svc"


def pair(folder: Path, *names: str) -> tuple[str, str]:
    """The paths of a certificate for these names and its key."""
    made = AUTHORITY.issue_cert(*names)
    made.private_key_pem.write_to_path(str(folder / "tls.key"))
    (folder / "tls.crt").write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    return str(folder / "tls.crt"), str(folder / "tls.key")


def flags(folder: Path, *names: str) -> tuple[str, ...]:
    certificate, key = pair(folder, *names)
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.crt"))
    files = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-client-ca-file", str(folder / "ca.crt"))
    return (*files, "--replicas-tls-name", NAME, *IMPATIENT)


class Scheduler:
    """kube-scheduler, an administrator who reads, and somebody without a certificate."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._known, self._unknown = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
        for context in (self._known, self._unknown):
            AUTHORITY.configure_trust(context)
        AUTHORITY.issue_cert("kube-scheduler", common_name="system:kube-scheduler").configure_cert(self._known)
        self._reads = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        AUTHORITY.configure_trust(self._reads)
        AUTHORITY.issue_cert("admin", common_name="admin", organization_name="system:masters").configure_cert(
            self._reads
        )

    async def post(self, server: Server, verb: str, body: Any) -> Any:
        url = f"{server.gpushare.replace('http:', 'https:')}/gpushare-scheduler/{verb}"
        async with self._session.post(url, json=body, ssl=self._known, server_hostname=NAME) as response:
            return await response.json()

    async def get(self, server: Server, path: str, *, known: bool = False) -> tuple[int, str]:
        url, context = server.native.replace("http:", "https:") + path, self._reads if known else self._unknown
        async with self._session.get(url, ssl=context, server_hostname=NAME) as response:
            return response.status, await response.text()

    async def until(self, server: Server, path: str, text: str) -> None:
        async with asyncio.timeout(LONGEST):
            while text not in (await self.get(server, path, known=True))[1]:
                await asyncio.sleep(0.02)


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    async with aiohttp.ClientSession() as session:
        yield Scheduler(session)


@asynccontextmanager
async def running(api: ScriptedApi, folder: Path, *flags: str) -> AsyncIterator[Server]:
    async with a_server(api, folder, *flags) as server:
        yield server
        (await server.process.stop()).clean()


async def test_replicas_speak_tls_with_schedulers_and_with_each_other(
    tmp_path: Path, scripted: ScriptedApi, scheduler: Scheduler
) -> None:
    add_namespace(scripted)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    pod = scripted.registry.create(resources.PODS, "default", pod_manifest("p")).obj
    with_tls = flags(tmp_path, NAME)
    async with running(scripted, tmp_path, *with_tls) as holder:
        await holder.process.says('"became the leader"')
        async with running(scripted, tmp_path, *with_tls) as other:
            await scheduler.until(other, "/readyz", "ok")
            assert (await scheduler.post(other, "filter", filter_call(pod)))["NodeNames"] == ["n1"]
            assert await scheduler.post(other, "bind", bind_call(pod)) == {"Error": ""}
            await holder.process.says('"on_behalf_of": "system:kube-scheduler at 127.0.0.1"')
            passed_on = 'aliquot_forwarded_total{outcome="answered",verb="bind"} 1.0'
            assert passed_on in (await scheduler.get(other, "/metrics", known=True))[1]
            assert (await scheduler.get(other, "/metrics"))[0] == 401
            assert await scheduler.get(other, "/healthz") == (200, "ok")


async def test_files_that_cannot_be_used_are_told_and_good_ones_taken(
    tmp_path: Path, scripted: ScriptedApi, scheduler: Scheduler
) -> None:
    add_namespace(scripted)
    async with running(scripted, tmp_path, *flags(tmp_path, NAME)) as server:
        await scheduler.until(server, "/readyz", "ok")
        (tmp_path / "tls.key").write_text("nonsense")
        await scheduler.until(server, "/readyz", "Aliquot keeps the previous certificates")
        assert "aliquot_tls_valid 0.0" in (await scheduler.get(server, "/metrics", known=True))[1]
        pair(tmp_path, NAME)
        await scheduler.until(server, "/metrics", "aliquot_tls_valid 1.0")
        await server.process.says("loaded new certificates")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param(
            ("--tls-cert-file", "{folder}/tls.crt"),
            "listen.tls.certFile and listen.tls.keyFile: set both or neither",
            id="no key",
        ),
        pytest.param(
            ("--tls-client-ca-file", "{folder}/ca.crt"),
            "listen.tls.clientCaFile: needs TLS, so set listen.tls.certFile",
            id="only an authority",
        ),
        pytest.param(
            ("--tls-cert-file", "{folder}/tls.crt", "--tls-key-file", "{folder}/gone"),
            "listen.tls.keyFile {folder}/gone: no such file",
            id="a file that there is not",
        ),
        pytest.param(
            ("--tls-cert-file", "{folder}/tls.key", "--tls-key-file", "{folder}/tls.key"),
            "listen.tls.certFile {folder}/tls.key, listen.tls.keyFile {folder}/tls.key: no PEM certificate",
            id="a key in the certificate's place",
        ),
    ],
)
async def test_what_cannot_be_used_is_found_without_a_start(tmp_path: Path, given: tuple[str, ...], text: str) -> None:
    pair(tmp_path, NAME)
    ended = await check(*(word.format(folder=tmp_path) for word in given))
    assert ended.code == 1
    assert text.format(folder=tmp_path) in ended.err

"""Exec plugins: a program tells who we are, again and again, and its failures are told in its words."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from aliquot.kube import NODES, Access, ApiError, Client, KubeError, NotSent, from_kubeconfig
from aliquot.kube.exec_plugin import ExecPlugin
from tests.fakes import FakeClock, hurried, until

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
AUTHORITY = trustme.CA()


@dataclass
class Guarded:
    """An API server with one node for those it knows."""

    tokens: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The token and the certificate's name of each request."""
    port: int = 0

    async def node(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        peer: Any = request.transport.get_extra_info("peercert") or {}
        names = dict(pair for part in peer.get("subject", ()) for pair in part)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append((token, names.get("commonName", "")))
        if self.tokens and token not in self.tokens:
            return web.json_response({"message": "who are you?"}, status=401)
        return web.json_response({"metadata": {"name": "n1"}})


@asynccontextmanager
async def guarded(*tokens: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Guarded]:
    api = Guarded(set(tokens))
    application = web.Application()
    application.router.add_get("/api/v1/nodes/n1", api.node)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    api.port = runner.addresses[0][1]
    try:
        yield api
    finally:
        await runner.cleanup()


class Program:
    """A plugin on disk; `says` is the status of its next answers."""

    def __init__(self, folder: Path, version: str = V1) -> None:
        self.path = folder / "plugin"
        self._answer, self._runs, self._version = folder / "answer", folder / "runs", version
        self.script(f'printf "%s;" "$*" >> {self._runs}; cat {self._answer}')

    def script(self, text: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{text}\n")
        self.path.chmod(0o755)

    def says(self, **status: str) -> None:
        answer = {"apiVersion": self._version, "kind": "ExecCredential", "status": status}
        self._answer.write_text(json.dumps(answer))

    @property
    def runs(self) -> list[str]:
        return self._runs.read_text().split(";")[:-1] if self._runs.exists() else []

    def plugin(self, clock: FakeClock, **how: Any) -> ExecPlugin:
        return ExecPlugin(str(self.path), version=self._version, clock=clock, **how)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def kubeconfig(folder: Path, server: str, section: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"exec": section}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def read_node(client: Client) -> str:
    return (await client.get(NODES, "n1")).key


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_the_program_s_token_is_sent_and_the_program_is_run_once(tmp_path: Path, version: str) -> None:
    program = Program(tmp_path, version)
    program.says(token="t1")
    section = {"apiVersion": version, "command": "./plugin", "args": ["get", "a token"], "interactiveMode": "Never"}
    async with guarded("t1") as api:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}", section)
        async with Client(from_kubeconfig(path)) as client:
            await asyncio.gather(*(read_node(client) for _ in range(5)))
    assert program.runs == ["get a token"]


async def test_the_program_is_told_about_the_cluster_and_gets_its_variables(tmp_path: Path, program: Program) -> None:
    program.says(token="t1")
    program.script(
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo "$OWN" > {tmp_path}/own; cat {tmp_path}/answer'
    )
    section = {
        "apiVersion": V1,
        "command": str(program.path),
        "env": [{"name": "OWN", "value": "$(touch x)"}],
        "provideClusterInfo": True,
    }
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    async with guarded("t1") as api:
        server = f"http://127.0.0.1:{api.port}"
        path = kubeconfig(tmp_path, server, section, extensions=extensions)
        async with Client(from_kubeconfig(path)) as client:
            await read_node(client)
    told = json.loads((tmp_path / "info").read_text())
    assert (told["apiVersion"], told["kind"]) == (V1, "ExecCredential")
    assert told["spec"] == {"interactive": False, "cluster": {"server": server, "config": {"audience": "a"}}}
    assert (tmp_path / "own").read_text() == "$(touch x)\n", "no shell reads it"


async def test_a_credential_is_fetched_again_shortly_before_it_expires(program: Program, clock: FakeClock) -> None:
    program.says(token="t1", expirationTimestamp="2023-11-14T22:31:00Z")  # 60 s after the clock's first moment
    plugin = program.plugin(clock)
    assert (await plugin.credential()).token == "t1"
    program.says(token="t2")
    await clock.move(49.0)
    assert (await plugin.credential()).token == "t1"
    await clock.move(1.5)
    assert (await plugin.credential()).token == "t2"
    await clock.move(1e6)
    assert (await plugin.credential()).token == "t2", "one without an expiry is kept"
    assert len(program.runs) == 2


async def test_a_credential_that_the_server_refuses_is_fetched_again_once(program: Program, clock: FakeClock) -> None:
    program.says(token="old")
    async with guarded("old") as api, Client(access(api, program.plugin(clock))) as client:
        await read_node(client)
        api.tokens = {"new"}
        program.says(token="new")
        assert await read_node(client) == "n1"
        api.tokens = {"other"}
        with pytest.raises(ApiError, match="who are you") as raised:
            await read_node(client)
    assert raised.value.code == 401
    assert [token for token, _ in api.asked] == ["old", "old", "new", "new", "new"]
    assert len(program.runs) == 3


def access(api: Guarded, plugin: ExecPlugin) -> Access:
    return Access(f"http://127.0.0.1:{api.port}", plugin=plugin)


async def test_a_certificate_is_presented_and_a_new_one_takes_its_place(tmp_path: Path, program: Program) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    AUTHORITY.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.cert_pem.bytes())
    async with guarded(tls=tls) as api:
        section = {"apiVersion": V1, "command": "./plugin"}
        path = kubeconfig(tmp_path, f"https://127.0.0.1:{api.port}", section, **{"certificate-authority": "ca.crt"})
        async with Client(from_kubeconfig(path)) as client:
            for name in ("first", "second", "third"):
                program.says(token=name, **certificate(name))
                api.tokens = {name}
                assert await read_node(client) == "n1"
    assert [asked for asked in api.asked if asked[0] == asked[1]][-1] == ("third", "third")
    assert {name for token, name in api.asked if token == "second"} == {"second"}


def certificate(name: str) -> dict[str, str]:
    made = AUTHORITY.issue_cert(f"{name}@aliquot.example", common_name=name)
    chain = "".join(pem.bytes().decode() for pem in made.cert_chain_pems)
    return {"clientCertificateData": chain, "clientKeyData": made.private_key_pem.bytes().decode()}


def prints(version: str = V1, **status: str) -> str:
    return f"echo '{json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status})}'"


FAILURES: list[Any] = [
    pytest.param("echo no session >&2; exit 3", "plugin ended with 3: no session", id="it fails"),
    pytest.param(
        "i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done; exit 1", "….{400}$", id="it says too much"
    ),
    pytest.param("echo nonsense", "returned no client.auth", id="no JSON"),
    pytest.param('echo "{}"', "returned no client.auth", id="no status"),
    pytest.param(prints(V1BETA1, token="t"), "it is a ExecCredential of .*v1beta1", id="another version"),
    pytest.param(prints(), "neither a token nor a certificate", id="nothing in it"),
    pytest.param(prints(clientKeyData="k"), "a key without its certificate", id="a key alone"),
    pytest.param(
        prints(token="t", expirationTimestamp="soon"),
        "returned no client.auth",
        id="no time",
    ),
    pytest.param("exec sleep 100", "did not answer within 0.1 s", id="it hangs"),
]


@pytest.mark.parametrize(("script", "text"), FAILURES)
async def test_a_program_that_gives_no_credential_is_told_and_nothing_is_sent(
    program: Program, clock: FakeClock, script: str, text: str
) -> None:
    program.script(script)
    async with (
        guarded() as api,
        Client(access(api, program.plugin(clock, seconds=0.1 if "sleep" in script else 20))) as c,
    ):
        with pytest.raises(NotSent, match=text):
            await read_node(c)
        program.script("exit 0")
        with pytest.raises(NotSent):
            await read_node(c)
    assert api.asked == []


async def test_a_program_that_has_gone_is_told(program: Program, clock: FakeClock) -> None:
    program.path.unlink()
    with pytest.raises(NotSent, match=r"cannot be run: .*No such file"):
        await program.plugin(clock).credential()


async def test_a_certificate_that_is_none_is_told(program: Program, clock: FakeClock) -> None:
    program.says(clientCertificateData="nonsense", clientKeyData="nonsense")
    tls = ssl.create_default_context()
    async with Client(Access("https://127.0.0.1:1", tls, plugin=program.plugin(clock))) as client:
        with pytest.raises(KubeError, match="the exec plugin's certificate cannot be used"):
            await read_node(client)


async def test_whoever_is_in_a_hurry_does_not_stop_the_program(
    tmp_path: Path, program: Program, clock: FakeClock
) -> None:
    gate = tmp_path / "gate"
    program.says(token="t1")
    program.script(f"while [ ! -e {gate} ]; do sleep 0.01; done; cat {tmp_path}/answer")
    async with guarded("t1") as api, Client(access(api, program.plugin(clock)), timeout=5) as client:
        with pytest.raises(NotSent, match="is still running"):
            await client.get(NODES, "n1", timeout=0.05)
        gate.touch()
        assert await read_node(client) == "n1"
        await until(lambda: len(api.asked) == 1)


async def test_a_client_that_is_closed_leaves_no_program_behind(
    tmp_path: Path, program: Program, clock: FakeClock
) -> None:
    pid = tmp_path / "pid"
    program.script(f"echo $$ > {pid}; exec sleep 100")
    async with guarded() as api, Client(access(api, program.plugin(clock, seconds=1e6))) as client:
        reading = asyncio.create_task(client.get(NODES, "n1", timeout=20))
        await until(lambda: pid.exists() and pid.read_text(), "the program runs")
        with pytest.raises(NotSent, match="is still running"):
            await hurried(reading)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()

"""Authentication by client certificate or Kubernetes token, and what each kind of caller may call."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from structlog.testing import capture_logs

from aliquot.control import ControlPlane
from aliquot.endpoints import health, native
from aliquot.endpoints.asgi import Caller, CallerKind, Routes
from aliquot.endpoints.callers import Callers, Known
from aliquot.endpoints.debug import Debugger
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates, Files
from aliquot.endpoints.tokens import Tokens
from aliquot.errors import Refused
from aliquot.kube import Access, Client
from aliquot.model.bounds import MAX_ACCEPTED_TOKENS, MAX_REFUSED_TOKENS, MAX_REVIEWS
from tests.fakes import Embedded, FakeClock, ScriptedApi, answer, body, held, until
from tests.integration.endpoints.endpoint import BIND, FILTER, INSPECT, bind_args
from tests.integration.endpoints.wire import names_call
from tests.integration.room import Room

OURS, CLIENTS = trustme.CA(), trustme.CA()
HOST = "127.0.0.1"
REPLICA = "aliquot-server.aliquot-system.svc"
ACCOUNT = "system:serviceaccount:aliquot-system:aliquot-server"
SCHEDULER, READER, NOBODY = "system:kube-scheduler", "system:serviceaccount:monitoring:prometheus", "jane"
KNOWN = Known(
    users={READER: CallerKind.READER, "root": None}, groups={"gpu-team": CallerKind.READER}, replica_name=REPLICA
)
TOKENS = {name: f"token-of-{name}" for name in (SCHEDULER, READER, ACCOUNT, NOBODY)}


class Server:
    """A port with gpushare's routes and our own, in front of a running control plane."""

    def __init__(self, room: Room, port: int, sessions: aiohttp.ClientSession) -> None:
        self.room = room
        self._url = f"https://{HOST}:{port}"
        self._session = sessions

    async def send(
        self,
        credentials: "Credentials",
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        shown = {**credentials.headers(), **(headers or {})}
        asking = self._session.request(
            method, self._url + path, json=body, headers=shown, ssl=credentials.context(), server_hostname=HOST
        )
        async with asking as response:
            return response.status, await response.text()


class Credentials:
    """A caller with a certificate, a token, both, or neither."""

    def __init__(self, name: str = "", *organizations: str, token: str = "", host: str = "client") -> None:
        self._name, self._organizations, self._token, self._host = name, organizations, token, host

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        OURS.configure_trust(context)
        if self._name or self._organizations:
            organization = self._organizations[0] if self._organizations else None
            CLIENTS.issue_cert(
                self._host, common_name=self._name or None, organization_name=organization
            ).configure_cert(context)
        return context

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


@pytest.fixture
def embedded() -> Embedded:
    """An API server with the users of this test."""
    made = Embedded()
    for name, token in TOKENS.items():
        made.cluster.users.add(name, token=token, rules=[])
    return made


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        yield running


@pytest.fixture
async def server(room: Room, client: Client, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Server]:
    await room.add_node()
    certificate = OURS.issue_cert(HOST)
    certificate.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    (tmp_path / "tls.crt").write_bytes(b"".join(one.bytes() for one in certificate.cert_chain_pems))
    CLIENTS.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    certificate_file, key, authority = (str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt"))
    files = Files(certificate_file, key, authority)
    callers = Callers(KNOWN, Tokens(client, clock), lambda: TOKENS[ACCOUNT])
    listener = Listener(routes_of(room.plane), HOST, 0, certificates=Certificates(files), callers=callers)
    async with listener, aiohttp.ClientSession() as session:
        yield Server(room, listener.port, session)


def routes_of(plane: ControlPlane) -> Routes:
    return Routes(
        {**GpuShareEndpoint(plane).routes(), **native.routes(plane), **Debugger().routes(), **health.routes(plane)}
    )


pytestmark = pytest.mark.embedded_only("the users and their tokens are the test's own")

DECIDED: list[tuple[str, str]] = [("POST", FILTER), ("POST", BIND), ("POST", "/aliquot/prioritize")]
SHOWN = [("GET", path) for path in (INSPECT, "/metrics", "/debug/pprof/cmdline", "/gone")]
OPEN = [("GET", path) for path in ("/healthz", "/readyz", "/version")]

CALLERS = [
    pytest.param(Credentials(SCHEDULER), {CallerKind.SCHEDULER}, id="kube-scheduler's certificate"),
    pytest.param(Credentials(token=TOKENS[SCHEDULER]), {CallerKind.SCHEDULER}, id="kube-scheduler's token"),
    pytest.param(
        Credentials("aliquot-server", host=REPLICA), {CallerKind.REPLICA}, id="a certificate with the replicas' name"
    ),
    pytest.param(Credentials(token=TOKENS[ACCOUNT]), {CallerKind.REPLICA}, id="a token of our own account"),
    pytest.param(Credentials("admin", "system:masters"), {CallerKind.READER}, id="an administrator's certificate"),
    pytest.param(Credentials("joe", "gpu-team"), {CallerKind.READER}, id="a certificate of a group"),
    pytest.param(Credentials(token=TOKENS[READER]), {CallerKind.READER}, id="a reader's token"),
    pytest.param(
        Credentials("jane", token=TOKENS[READER]),
        {CallerKind.READER},
        id="a token with a certificate of no kind",
    ),
    pytest.param(Credentials(SCHEDULER, "gpu-team"), {CallerKind.SCHEDULER, CallerKind.READER}, id="two kinds"),
    pytest.param(Credentials("system:node:n1", "system:nodes"), set(), id="a kubelet's certificate"),
    pytest.param(Credentials("root"), set(), id="a user with the kind nobody"),
    pytest.param(Credentials(token=TOKENS[NOBODY]), set(), id="another user's token"),
    pytest.param(Credentials(), None, id="nothing"),
    pytest.param(Credentials(token="made-up"), None, id="an unknown token"),
]


@pytest.mark.parametrize(("credentials", "kinds"), CALLERS)
async def test_each_kind_of_caller_gets_only_its_routes(
    server: Server, credentials: Credentials, kinds: set[CallerKind] | None
) -> None:
    for method, path in OPEN:
        assert (await server.send(credentials, method, path))[0] == 200, path
    for routes, wanted in ((DECIDED, {CallerKind.SCHEDULER, CallerKind.REPLICA}), (SHOWN, {CallerKind.READER})):
        for method, path in routes:
            status, text = await server.send(credentials, method, path, {} if method == "POST" else None)
            if kinds is None:
                assert status == 401, (path, text)
            elif not kinds & wanted:
                assert status == 403, (path, text)
                assert "callers.users" in text
            else:
                assert status not in (401, 403), (path, text)


PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


@pytest.mark.parametrize(
    ("credentials", "status"),
    [
        pytest.param(Credentials(), 401, id="nobody"),
        pytest.param(Credentials(token="made up"), 401, id="a made-up token"),
        pytest.param(Credentials(token=TOKENS[NOBODY]), 403, id="a user without the right"),
        pytest.param(Credentials(token=TOKENS[SCHEDULER]), 403, id="a scheduler without the right"),
        pytest.param(Credentials(token="token-of-jill"), 200, id="a user with the right"),
        pytest.param(Credentials("jill"), 200, id="the same by certificate"),
        pytest.param(Credentials("jack", "system:masters"), 200, id="a group with every right"),
    ],
)
async def test_the_read_endpoints_serve_every_caller_by_its_own_rights(
    server: Server, embedded: Embedded, credentials: Credentials, status: int
) -> None:
    embedded.cluster.users.add("jill", token="token-of-jill", rules=[PODS])

    assert (await server.send(credentials, "GET", "/v1/pods"))[0] == status


async def test_unknown_callers_change_nothing(server: Server) -> None:
    pod = await server.room.add_pod()
    before = server.room.api.store.revision
    for credentials in (Credentials(), Credentials("jane"), Credentials(token=TOKENS[READER])):
        status, text = await server.send(credentials, "POST", BIND, bind_args(pod))
        assert status in (401, 403)
        assert pod.metadata.uid not in text
    assert server.room.api.store.revision == before


# -- tokens


def reviews(room: Room) -> int:
    return sum("tokenreviews" in seen.path for seen in room.api.seen)


async def test_a_token_review_is_cached_for_a_while(server: Server) -> None:
    """Our own token is reviewed too, to recognize replicas."""
    credentials = Credentials(token=TOKENS[READER])
    for _ in range(3):
        assert (await server.send(credentials, "GET", INSPECT))[0] == 200
    assert reviews(server.room) == 2
    await server.room.clock.move(61)
    assert (await server.send(credentials, "GET", INSPECT))[0] == 200
    assert reviews(server.room) == 4


async def test_an_unknown_token_is_reviewed_again_soon(server: Server, embedded: Embedded) -> None:
    credentials = Credentials(token="not yet")
    assert (await server.send(credentials, "GET", INSPECT))[0] == 401
    embedded.cluster.users.add(READER, token="not yet", rules=[])
    assert (await server.send(credentials, "GET", INSPECT))[0] == 401
    await server.room.clock.move(11)
    assert (await server.send(credentials, "GET", INSPECT))[0] == 200


async def test_certificates_work_while_the_api_server_does_not_answer(server: Server) -> None:
    for _ in range(2):
        server.room.api.script("POST", "tokenreviews", answer(500, message="later"))
    status, text = await server.send(Credentials(token=TOKENS[READER]), "GET", INSPECT)
    assert (status, "later" in text) == (503, True)
    assert (await server.send(Credentials("admin", "system:masters"), "GET", INSPECT))[0] == 200


# -- invented tokens


@pytest.fixture
async def tokens(scripted: ScriptedApi, clock: FakeClock) -> AsyncIterator[Tokens]:
    """Token reviews by the scripted API server."""
    async with Client(Access(scripted.url)) as client:
        yield Tokens(client, clock)


@asynccontextmanager
async def all_reviews_taken(tokens: Tokens, api: ScriptedApi) -> AsyncIterator[None]:
    """Invented tokens occupy all reviews inside this context; another one is refused."""
    release, before = asyncio.Event(), len(api.seen)
    api.script("POST", "tokenreviews", *(held(asyncio.Event(), release) for _ in range(MAX_REVIEWS)))
    flood = [asyncio.create_task(tokens.user(f"invented-{number}")) for number in range(MAX_REVIEWS)]
    await until(lambda: len(api.seen) == before + MAX_REVIEWS, "the API server has them all")
    with pytest.raises(Refused, match="too many tokens"):
        await tokens.user("one more")
    try:
        yield
    finally:
        release.set()
        assert await asyncio.gather(*flood) == [None] * MAX_REVIEWS


async def test_invented_tokens_do_not_evict_accepted_tokens(tokens: Tokens, scripted: ScriptedApi) -> None:
    good = TOKENS[SCHEDULER]
    assert await tokens.user(good) is not None
    for first in range(0, MAX_REFUSED_TOKENS + MAX_REVIEWS, MAX_REVIEWS):
        await asyncio.gather(*(tokens.user(f"invented-{first + number}") for number in range(MAX_REVIEWS)))
    before = len(scripted.seen)
    assert await tokens.user(good) is not None
    assert len(scripted.seen) == before, "it is still cached"
    assert await tokens.user("invented-0") is None
    assert len(scripted.seen) == before + 1, "the oldest invented token is evicted"


async def test_the_least_recently_used_accepted_token_is_evicted_first(
    tokens: Tokens, embedded: Embedded, scripted: ScriptedApi
) -> None:
    used, idle = TOKENS[SCHEDULER], TOKENS[READER]
    for number in range(MAX_ACCEPTED_TOKENS - 1):
        embedded.cluster.users.add(f"u{number}", token=f"token-{number}", rules=[])
    for token in (used, idle, *(f"token-{number}" for number in range(MAX_ACCEPTED_TOKENS - 2)), used):
        assert await tokens.user(token) is not None
    assert await tokens.user(f"token-{MAX_ACCEPTED_TOKENS - 2}") is not None
    before = len(scripted.seen)
    for token, reviewed in ((used, 0), (idle, 1)):
        assert await tokens.user(token) is not None
        assert len(scripted.seen) == before + reviewed


async def test_invented_tokens_do_not_block_the_review_of_accepted_tokens(
    tokens: Tokens, scripted: ScriptedApi, clock: FakeClock
) -> None:
    good = TOKENS[SCHEDULER]
    assert await tokens.user(good) is not None
    await clock.move(3600)
    async with all_reviews_taken(tokens, scripted):
        assert await tokens.user(good) is not None


async def test_invented_tokens_do_not_block_the_review_of_our_own_token(tokens: Tokens, scripted: ScriptedApi) -> None:
    """Our own token changes every hour, and the user of every token is compared with its user."""
    good = TOKENS[SCHEDULER]
    assert await tokens.user(good) is not None
    callers = Callers(Known(), tokens, lambda: TOKENS[ACCOUNT])
    async with all_reviews_taken(tokens, scripted):
        found = await callers.identify(None, b"Bearer " + good.encode())
    assert isinstance(found, Caller)
    assert found.kinds == {CallerKind.SCHEDULER}


async def test_a_revoked_token_loses_its_place_among_accepted_tokens(
    tokens: Tokens, scripted: ScriptedApi, clock: FakeClock
) -> None:
    good = TOKENS[SCHEDULER]
    assert await tokens.user(good) is not None
    await clock.move(61)
    scripted.script("POST", "tokenreviews", body(b'{"status":{"error":"expired"}}', 201))
    assert await tokens.user(good) is None
    await clock.move(11)
    async with all_reviews_taken(tokens, scripted):
        with pytest.raises(Refused, match="too many tokens"):
            await tokens.user(good)


# -- without the right to review tokens


async def test_without_the_right_to_review_tokens_are_refused_and_the_rule_is_shown(
    embedded: Embedded, scripted: ScriptedApi, clock: FakeClock
) -> None:
    embedded.cluster.users.add("system:serviceaccount:kube-system:original", token="few-rights", rules=[])
    async with Client(Access(scripted.url, token="few-rights")) as client:
        tokens = Tokens(client, clock)
        await tokens.check()
        (note,) = tokens.notes()
        found = await Callers(Known(), tokens).identify(None, b"Bearer " + TOKENS[READER].encode())
    assert note.startswith("may not create tokenreviews")
    assert '- {apiGroups: ["authentication.k8s.io"], resources: [tokenreviews], verbs: [create]}' in note
    assert getattr(found, "status", 0) == 503


# -- the audit line


AUDITED: list[Any] = [
    pytest.param(Credentials(SCHEDULER), {}, {"caller": SCHEDULER, "kind": "scheduler"}, id="a scheduler"),
    pytest.param(
        Credentials("aliquot-server", host=REPLICA),
        {"X-Aliquot-Caller": f"{SCHEDULER} at 10.0.0.1"},
        {"caller": "aliquot-server", "kind": "replica", "on_behalf_of": f"{SCHEDULER} at 10.0.0.1"},
        id="a scheduler through another replica",
    ),
    pytest.param(
        Credentials(SCHEDULER),
        {"X-Aliquot-Caller": "somebody else"},
        {"caller": SCHEDULER, "kind": "scheduler"},
        id="a scheduler that may not act on behalf of others",
    ),
]


@pytest.mark.parametrize(("credentials", "headers", "logged"), AUDITED)
@pytest.mark.parametrize("filtered", [True, False], ids=["bound", "refused"])
async def test_the_audit_line_of_a_bind_names_its_caller(
    server: Server, credentials: Credentials, headers: dict[str, str], logged: dict[str, str], filtered: bool
) -> None:
    pod = await server.room.add_pod()
    manifest = server.room.api_pod(pod)
    if filtered:
        await server.send(credentials, "POST", FILTER, names_call(manifest, ["n1"]), headers)
    with capture_logs() as lines:
        await server.send(credentials, "POST", BIND, bind_args(pod), headers)
    (line,) = (line for line in lines if line["event"] == "audit")
    why = line.pop("why", "")
    assert bool(why) is not filtered
    assert line == {
        "event": "audit",
        "log_level": "info" if filtered else "warning",
        "verb": "bind",
        "pod": "default/p",
        "node": "n1",
        "verdict": "bound" if filtered else "refused",
        "address": HOST,
        **logged,
    }

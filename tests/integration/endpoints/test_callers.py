"""Who is answered on a port that asks: by client certificate or by Kubernetes token, and as what."""

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


class House:
    """A port with gpushare's routes and our own, in front of a control plane at work."""

    def __init__(self, room: Room, port: int, sessions: aiohttp.ClientSession) -> None:
        self.room = room
        self._url = f"https://{HOST}:{port}"
        self._session = sessions

    async def send(
        self, who: "Who", method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        shown = {**who.headers(), **(headers or {})}
        asking = self._session.request(
            method, self._url + path, json=body, headers=shown, ssl=who.context(), server_hostname=HOST
        )
        async with asking as response:
            return response.status, await response.text()


class Who:
    """Somebody with a certificate, with a token, with both, or with neither."""

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
    """An API server with users of the test's own making."""
    made = Embedded()
    for name, token in TOKENS.items():
        made.cluster.users.add(name, token=token, rules=[])
    return made


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        yield running


@pytest.fixture
async def house(room: Room, client: Client, clock: FakeClock, tmp_path: Path) -> AsyncIterator[House]:
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
        yield House(room, listener.port, session)


def routes_of(plane: ControlPlane) -> Routes:
    return Routes(
        {**GpuShareEndpoint(plane).routes(), **native.routes(plane), **Debugger().routes(), **health.routes(plane)}
    )


pytestmark = pytest.mark.embedded_only("the users and their tokens are the test's own")

DECIDED: list[tuple[str, str]] = [("POST", FILTER), ("POST", BIND), ("POST", "/aliquot/prioritize")]
SHOWN = [("GET", path) for path in (INSPECT, "/metrics", "/debug/pprof/cmdline", "/gone")]
OPEN = [("GET", path) for path in ("/healthz", "/readyz", "/version")]

CALLERS = [
    pytest.param(Who(SCHEDULER), {CallerKind.SCHEDULER}, id="kube-scheduler's certificate"),
    pytest.param(Who(token=TOKENS[SCHEDULER]), {CallerKind.SCHEDULER}, id="a token of kube-scheduler's"),
    pytest.param(Who("aliquot-server", host=REPLICA), {CallerKind.REPLICA}, id="a certificate with the replicas' name"),
    pytest.param(Who(token=TOKENS[ACCOUNT]), {CallerKind.REPLICA}, id="a token of our own account"),
    pytest.param(Who("admin", "system:masters"), {CallerKind.READER}, id="an administrator's certificate"),
    pytest.param(Who("joe", "gpu-team"), {CallerKind.READER}, id="a certificate of a group"),
    pytest.param(Who(token=TOKENS[READER]), {CallerKind.READER}, id="a reader's token"),
    pytest.param(
        Who("jane", token=TOKENS[READER]), {CallerKind.READER}, id="a token beside a certificate that says nothing"
    ),
    pytest.param(Who(SCHEDULER, "gpu-team"), {CallerKind.SCHEDULER, CallerKind.READER}, id="two kinds"),
    pytest.param(Who("system:node:n1", "system:nodes"), set(), id="a kubelet's certificate"),
    pytest.param(Who("root"), set(), id="somebody who is said to be nobody"),
    pytest.param(Who(token=TOKENS[NOBODY]), set(), id="a token of somebody else"),
    pytest.param(Who(), None, id="nothing"),
    pytest.param(Who(token="made-up"), None, id="a token that nobody has"),
]


@pytest.mark.parametrize(("who", "kinds"), CALLERS)
async def test_each_kind_of_caller_is_answered_what_is_for_it(
    house: House, who: Who, kinds: set[CallerKind] | None
) -> None:
    for method, path in OPEN:
        assert (await house.send(who, method, path))[0] == 200, path
    for routes, wanted in ((DECIDED, {CallerKind.SCHEDULER, CallerKind.REPLICA}), (SHOWN, {CallerKind.READER})):
        for method, path in routes:
            status, text = await house.send(who, method, path, {} if method == "POST" else None)
            if kinds is None:
                assert status == 401, (path, text)
            elif not kinds & wanted:
                assert status == 403, (path, text)
                assert "callers.users" in text
            else:
                assert status not in (401, 403), (path, text)


async def test_those_who_are_not_known_change_nothing(house: House) -> None:
    pod = await house.room.add_pod()
    before = house.room.api.store.revision
    for who in (Who(), Who("jane"), Who(token=TOKENS[READER])):
        status, text = await house.send(who, "POST", BIND, bind_args(pod))
        assert status in (401, 403)
        assert pod.metadata.uid not in text
    assert house.room.api.store.revision == before


# -- tokens


def reviews(room: Room) -> int:
    return sum("tokenreviews" in seen.path for seen in room.api.seen)


async def test_a_token_is_reviewed_once_for_a_while(house: House) -> None:
    """Ours is reviewed, too, to see whether it is a replica's."""
    who = Who(token=TOKENS[READER])
    for _ in range(3):
        assert (await house.send(who, "GET", INSPECT))[0] == 200
    assert reviews(house.room) == 2
    await house.room.clock.move(61)
    assert (await house.send(who, "GET", INSPECT))[0] == 200
    assert reviews(house.room) == 4


async def test_a_token_that_nobody_has_is_reviewed_again_soon(house: House, embedded: Embedded) -> None:
    who = Who(token="not yet")
    assert (await house.send(who, "GET", INSPECT))[0] == 401
    embedded.cluster.users.add(READER, token="not yet", rules=[])
    assert (await house.send(who, "GET", INSPECT))[0] == 401
    await house.room.clock.move(11)
    assert (await house.send(who, "GET", INSPECT))[0] == 200


async def test_an_api_server_that_does_not_answer_leaves_certificates_working(house: House) -> None:
    for _ in range(2):
        house.room.api.script("POST", "tokenreviews", answer(500, message="later"))
    status, text = await house.send(Who(token=TOKENS[READER]), "GET", INSPECT)
    assert (status, "later" in text) == (503, True)
    assert (await house.send(Who("admin", "system:masters"), "GET", INSPECT))[0] == 200


# -- tokens that somebody makes up


@pytest.fixture
async def asked(scripted: ScriptedApi, clock: FakeClock) -> AsyncIterator[Tokens]:
    """By whom the API server is asked whose a token is."""
    async with Client(Access(scripted.url)) as client:
        yield Tokens(client, clock)


@asynccontextmanager
async def all_reviews_taken(tokens: Tokens, api: ScriptedApi) -> AsyncIterator[None]:
    """By made-up tokens, for as long as this lasts; one more of them is refused."""
    release, before = asyncio.Event(), len(api.seen)
    api.script("POST", "tokenreviews", *(held(asyncio.Event(), release) for _ in range(MAX_REVIEWS)))
    flood = [asyncio.create_task(tokens.user(f"made-up-{number}")) for number in range(MAX_REVIEWS)]
    await until(lambda: len(api.seen) == before + MAX_REVIEWS, "the API server has them all")
    with pytest.raises(Refused, match="too many tokens"):
        await tokens.user("one more")
    try:
        yield
    finally:
        release.set()
        assert await asyncio.gather(*flood) == [None] * MAX_REVIEWS


async def test_made_up_tokens_push_no_good_one_out(asked: Tokens, scripted: ScriptedApi) -> None:
    good = TOKENS[SCHEDULER]
    assert await asked.user(good) is not None
    for first in range(0, MAX_REFUSED_TOKENS + MAX_REVIEWS, MAX_REVIEWS):
        await asyncio.gather(*(asked.user(f"made-up-{first + number}") for number in range(MAX_REVIEWS)))
    before = len(scripted.seen)
    assert await asked.user(good) is not None
    assert len(scripted.seen) == before, "it is still remembered"
    assert await asked.user("made-up-0") is None
    assert len(scripted.seen) == before + 1, "of made-up ones the oldest is forgotten"


async def test_the_good_token_that_nobody_has_used_for_longest_is_forgotten_first(
    asked: Tokens, embedded: Embedded, scripted: ScriptedApi
) -> None:
    used, idle = TOKENS[SCHEDULER], TOKENS[READER]
    for number in range(MAX_ACCEPTED_TOKENS - 1):
        embedded.cluster.users.add(f"u{number}", token=f"token-{number}", rules=[])
    for token in (used, idle, *(f"token-{number}" for number in range(MAX_ACCEPTED_TOKENS - 2)), used):
        assert await asked.user(token) is not None
    assert await asked.user(f"token-{MAX_ACCEPTED_TOKENS - 2}") is not None
    before = len(scripted.seen)
    for token, reviewed in ((used, 0), (idle, 1)):
        assert await asked.user(token) is not None
        assert len(scripted.seen) == before + reviewed


async def test_made_up_tokens_keep_no_good_one_from_being_reviewed_again(
    asked: Tokens, scripted: ScriptedApi, clock: FakeClock
) -> None:
    good = TOKENS[SCHEDULER]
    assert await asked.user(good) is not None
    await clock.move(3600)
    async with all_reviews_taken(asked, scripted):
        assert await asked.user(good) is not None


async def test_made_up_tokens_keep_no_replica_from_knowing_its_own_account(
    asked: Tokens, scripted: ScriptedApi
) -> None:
    """Its own token is new each hour, and every caller with a token is compared with whose it is."""
    good = TOKENS[SCHEDULER]
    assert await asked.user(good) is not None
    callers = Callers(Known(), asked, lambda: TOKENS[ACCOUNT])
    async with all_reviews_taken(asked, scripted):
        found = await callers.identify(None, b"Bearer " + good.encode())
    assert isinstance(found, Caller)
    assert found.kinds == {CallerKind.SCHEDULER}


async def test_a_token_that_is_good_no_more_has_no_review_of_its_own_any_more(
    asked: Tokens, scripted: ScriptedApi, clock: FakeClock
) -> None:
    good = TOKENS[SCHEDULER]
    assert await asked.user(good) is not None
    await clock.move(61)
    scripted.script("POST", "tokenreviews", body(b'{"status":{"error":"expired"}}', 201))
    assert await asked.user(good) is None
    await clock.move(11)
    async with all_reviews_taken(asked, scripted):
        with pytest.raises(Refused, match="too many tokens"):
            await asked.user(good)


# -- without the right to review tokens


async def test_without_the_right_to_review_tokens_they_are_refused_and_the_rule_is_named(
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


# -- what the log says


AUDITED: list[Any] = [
    pytest.param(Who(SCHEDULER), {}, {"caller": SCHEDULER, "kind": "scheduler"}, id="a scheduler"),
    pytest.param(
        Who("aliquot-server", host=REPLICA),
        {"X-Aliquot-Caller": f"{SCHEDULER} at 10.0.0.1"},
        {"caller": "aliquot-server", "kind": "replica", "on_behalf_of": f"{SCHEDULER} at 10.0.0.1"},
        id="a scheduler through another replica",
    ),
    pytest.param(
        Who(SCHEDULER),
        {"X-Aliquot-Caller": "somebody else"},
        {"caller": SCHEDULER, "kind": "scheduler"},
        id="a scheduler that speaks for others, and may not",
    ),
]


@pytest.mark.parametrize(("who", "headers", "told"), AUDITED)
@pytest.mark.parametrize("filtered", [True, False], ids=["bound", "refused"])
async def test_a_bind_is_told_with_its_caller(
    house: House, who: Who, headers: dict[str, str], told: dict[str, str], filtered: bool
) -> None:
    pod = await house.room.add_pod()
    manifest = house.room.api_pod(pod)
    if filtered:
        await house.send(who, "POST", FILTER, names_call(manifest, ["n1"]), headers)
    with capture_logs() as lines:
        await house.send(who, "POST", BIND, bind_args(pod), headers)
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
        **told,
    }

"""Who calls the query API: believed as API servers believe, over real TLS, while CAs change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from aliquot.embedded.api import resources
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import CallerKind, Routes
from aliquot.endpoints.callers import Callers, Known
from aliquot.endpoints.client_certificates import Authorities
from aliquot.endpoints.cluster_callers import ClusterCallers
from aliquot.endpoints.cluster_trust import NAME, NAMESPACE, ClusterTrust
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.query_tls import QueryTls
from aliquot.endpoints.tokens import Tokens
from aliquot.kube import CONFIG_MAPS, Client
from tests.fakes import Embedded, FakeClock, ScriptedApi, until

pytestmark = pytest.mark.embedded_only("the users, their tokens and the API server's settings are the test's own")

HOST = "127.0.0.1"
OURS, PROXIES, CLIENTS, STRANGERS = (trustme.CA() for _ in range(4))
REPLICA = "gpu.kube-system.svc"
PROXY = "front-proxy-client"
NOW = datetime.now(UTC)


@dataclass(frozen=True)
class Shown:
    """A client certificate with its chain, and its key."""

    chain: bytes
    key: bytes

    def configure(self, context: ssl.SSLContext, folder: Path) -> None:
        file = folder / f"{abs(hash(self.chain))}.pem"
        file.write_bytes(self.chain + self.key)
        context.load_cert_chain(file)


def issued(
    authority: trustme.CA,
    name: str,
    *groups: str,
    uses: Sequence[ObjectIdentifier] | None = (ExtendedKeyUsageOID.CLIENT_AUTH,),
    until: timedelta = timedelta(days=1),
    host: str = "",
) -> Shown:
    """As Kubernetes issues client certificates: without subjectAltName."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*parts, *([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])])
    certificate, signing = authority._certificate, authority._private_key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2023, 1, 1, tzinfo=UTC))  # the fake clock is slow
        .not_valid_after(NOW + until)
    )
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    made = builder.sign(signing, hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Shown(made.public_bytes(pem), secret)


def settings(proxies: str = "", clients: str = "", **changed: str) -> dict[str, str]:
    """The API server's ConfigMap."""
    return {
        "client-ca-file": clients or CLIENTS.cert_pem.bytes().decode(),
        "requestheader-client-ca-file": proxies or PROXIES.cert_pem.bytes().decode(),
        "requestheader-allowed-names": f'["{PROXY}"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
    } | {key.replace("_", "-"): value for key, value in changed.items()}


class Port:
    """A port of the query API that answers who calls."""

    def __init__(
        self, client: Client, listener: Listener, trust: ClusterTrust, calendar: FakeClock, folder: Path
    ) -> None:
        self.trust, self.calendar, self.folder = trust, calendar, folder
        self.port = listener.port
        self._client = client

    async def publish(self, data: dict[str, str]) -> None:
        """Change the API server's settings, and wait until the port knows."""
        before, noted = self.trust.current, self.trust.notes()
        await self._client.patch(CONFIG_MAPS, NAME, {"data": data}, namespace=NAMESPACE)
        await until(lambda: self.trust.current is not before or self.trust.notes() != noted)

    def context(self, shown: Shown | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        OURS.configure_trust(context)
        if shown is not None:
            shown.configure(context, self.folder)
        return context

    @asynccontextmanager
    async def connected(self, shown: Shown | None = None) -> AsyncIterator["Connection"]:
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self.context(shown), server_hostname=HOST)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def ask(self, shown: Shown | None = None, *headers: str) -> tuple[int, Any]:
        async with self.connected(shown) as connection:
            return await connection.ask(*headers)


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.head = b""

    async def ask(self, *headers: str, path: str = "/who", rest: str = "") -> tuple[int, Any]:
        """`rest` follows the head of the request."""
        lines = "\r\n".join([f"GET {path} HTTP/1.1", "host: a", *headers, "", rest])
        self._writer.write(lines.encode())
        self.head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        size = int(self.head.partition(b"content-length: ")[2].split()[0])
        content = await self._reader.readexactly(size)
        status = int(self.head.split()[1])
        return status, msgspec.json.decode(content) if b"application/json" in self.head else content.decode()


async def who(call: asgi.Call) -> asgi.Response:
    caller = call.caller
    left = sorted(name.decode() for name in call.headers if name not in (b"host",))
    kinds = sorted(kind.value for kind in caller.kinds)
    return asgi.json([caller.name, list(caller.groups), caller.uid, dict(caller.extra), kinds, left])


@pytest.fixture
def embedded() -> Embedded:
    made = Embedded()
    made.cluster.users.add("jane", token="token-of-jane", rules=[])
    return made


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        running.registry.create(resources.CONFIG_MAPS, NAMESPACE, {"metadata": {"name": NAME}, "data": settings()})
        yield running


@pytest.fixture
async def port(client: Client, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Port]:
    pair = OURS.issue_cert(HOST)
    chain, key = b"".join(one.bytes() for one in pair.cert_chain_pems), pair.private_key_pem.bytes()
    trust, own = ClusterTrust(client, clock), Authorities.of(OURS.cert_pem.bytes().decode())
    tls = QueryTls(ssl.TLSVersion.TLSv1_2, chain, key, "")
    trust.changed.subscribe(lambda _: tls.use(chain, key, trust.current.pem() + own.pem()))
    calendar = FakeClock()
    known = Callers(Known(replica_name=REPLICA), Tokens(client, clock))
    callers = ClusterCallers(known, trust, calendar, lambda: own)
    following = asyncio.create_task(trust.run())
    await asyncio.wait_for(trust.tried.wait(), 10)
    routes = Routes(
        {
            ("GET", "/who"): asgi.OwnRightsHandler(who),
            ("GET", "/healthz"): asgi.OpenHandler(who),
            ("GET", "/metrics"): who,
        }
    )
    async with Listener(routes, HOST, 0, certificates=tls, callers=callers, clock=clock) as listener:
        yield Port(client, listener, trust, calendar, tmp_path)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


JOE = ("X-Remote-User: joe", "X-Remote-Group: dev")
ANONYMOUS = ["system:anonymous", ["system:unauthenticated"], "", {}, [], []]


async def test_a_front_proxy_names_the_user(port: Port) -> None:
    answer = await port.ask(
        issued(PROXIES, PROXY),
        "X-Remote-User: joé",
        "X-Remote-Uid: 42",
        "X-Remote-Group: dev",
        "x-remote-group: ops",
        "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id: a",
        "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id: b",
        "X-Remote-Extra-Scopes: all",
        "Accept: text/plain",
    )
    extra = {"authentication.kubernetes.io/credential-id": ["a", "b"], "scopes": ["all"]}
    groups = ["dev", "ops", "system:authenticated"]
    assert answer == (200, ["joé", groups, "42", extra, [], ["accept"]])


async def test_a_user_without_groups_is_authenticated(port: Port) -> None:
    """kube-apiserver sends no group with discovery and OpenAPI calls."""
    _, seen = await port.ask(issued(PROXIES, PROXY), "X-Remote-User: system:aggregator")
    assert seen[:2] == ["system:aggregator", ["system:authenticated"]]


@pytest.mark.parametrize("name", ["system:anonymous", "joe"])
async def test_anonymous_stays_anonymous_behind_a_front_proxy(port: Port, name: str) -> None:
    _, seen = await port.ask(issued(PROXIES, PROXY), f"X-Remote-User: {name}", "X-Remote-Group: system:unauthenticated")
    assert seen[1] == ["system:unauthenticated"]


async def test_a_client_certificate_is_a_user_with_groups(port: Port) -> None:
    _, seen = await port.ask(issued(CLIENTS, "jill", "dev", "ops"))
    assert seen[:2] == ["jill", ["dev", "ops", "system:authenticated"]]


async def test_a_token_is_reviewed(port: Port) -> None:
    _, seen = await port.ask(None, "Authorization: Bearer token-of-jane")
    assert seen[0] == "jane"
    assert "system:authenticated" in seen[1]
    status, refusal = await port.ask(None, "Authorization: Bearer made-up")
    assert (status, refusal["kind"], refusal["reason"]) == (401, "Status", "Unauthorized")


async def test_nobody_is_anonymous(port: Port) -> None:
    assert await port.ask() == (200, ANONYMOUS)


async def test_a_replica_shows_our_own_certificate(port: Port) -> None:
    _, seen = await port.ask(issued(OURS, "replica", host=REPLICA))
    assert seen[4] == [CallerKind.REPLICA.value]
    assert (await port.ask(issued(OURS, "replica", host="other")))[0] == 401
    _, seen = await port.ask(issued(CLIENTS, "replica", host=REPLICA))
    assert seen[4] == [], "the name alone is no proof"


# -- attacks


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        pytest.param(issued(CLIENTS, "mallory"), ["mallory", ["system:authenticated"]], id="client certificate"),
        pytest.param(issued(CLIENTS, PROXY), [PROXY, ["system:authenticated"]], id="client certificate of that name"),
        pytest.param(None, ANONYMOUS[:2], id="no certificate"),
        pytest.param(issued(PROXIES, "somebody"), 401, id="a name that is not allowed"),
        pytest.param(issued(PROXIES, PROXY, uses=(ExtendedKeyUsageOID.SERVER_AUTH,)), None, id="a server's"),
        pytest.param(issued(PROXIES, PROXY, uses=None), 401, id="a certificate for nothing in particular"),
        pytest.param(issued(PROXIES, PROXY, until=timedelta(days=-1)), None, id="expired"),
        pytest.param(issued(STRANGERS, PROXY), None, id="another CA's"),
    ],
)
async def test_forged_headers_are_not_believed(port: Port, shown: Shown | None, expected: Any) -> None:
    """None: the handshake fails."""
    asking = port.ask(shown, "X-Remote-User: admin", "X-Remote-Group: system:masters")
    if expected is None:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await asking
        return
    status, seen = await asking
    assert (status if status == 401 else seen[:2]) == expected


@pytest.mark.parametrize(
    "header",
    [
        "X_Remote_User: admin",
        "X-Remote-User : admin",
        "X-Remote-User:",
        "X-Remote-Users: admin",
        " X-Remote-User: admin",
    ],
)
async def test_headers_that_only_look_alike_name_nobody(port: Port, header: str) -> None:
    """A front proxy removes what clients send under its names; what it lets through must not count."""
    async with port.connected(issued(PROXIES, PROXY)) as connection:
        status, seen = await connection.ask("accept: text/plain", header)
    assert status in (400, 401), seen


async def test_a_trailer_after_the_body_says_nothing_about_the_user(port: Port) -> None:
    """A front proxy cleans the headers that it passes on, but a body's trailer comes from the client."""
    sent = ["X-Remote-User: joe", "Transfer-Encoding: chunked", "Trailer: X-Remote-Group"]
    rest = "1\r\na\r\n0\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: all\r\n\r\n"
    async with port.connected(issued(PROXIES, PROXY)) as connection:
        _, seen = await connection.ask(*sent, rest=rest)
        assert seen[:5] == ["joe", ["system:authenticated"], "", {}, []]
        _, seen = await connection.ask(*JOE)
        assert seen[:2] == ["joe", ["dev", "system:authenticated"]], "the next request has headers again"


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1", "h2c"])
async def test_the_body_of_a_request_for_another_protocol_is_not_the_next_request(port: Port, protocol: str) -> None:
    """A proxy may pass such a request on as it came, with a body that its client wrote."""
    hidden = "GET /who HTTP/1.1\r\nhost: a\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n\r\n"
    asking = "Connection: Upgrade", f"Upgrade: {protocol}", f"Content-Length: {len(hidden)}"
    async with port.connected(issued(PROXIES, PROXY)) as connection:
        assert (await connection.ask(*JOE, *asking))[1][0] == "joe"
        assert b"connection: close" in connection.head
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await connection.ask("X-Remote-User: admin", "X-Remote-Group: system:masters")


async def test_a_trailer_names_no_user(port: Port) -> None:
    async with port.connected(issued(PROXIES, PROXY)) as connection:
        rest = "0\r\nX-Remote-User: admin\r\nAuthorization: Bearer token-of-jane\r\n\r\n"
        assert (await connection.ask("Transfer-Encoding: chunked", rest=rest))[0] == 401


async def test_of_a_repeated_user_the_first_counts(port: Port) -> None:
    _, seen = await port.ask(issued(PROXIES, PROXY), *JOE, "x-remote-user: admin")
    assert seen[0] == "joe"


async def test_a_huge_header_is_refused(port: Port) -> None:
    status, _ = await port.ask(issued(PROXIES, PROXY), f"X-Remote-Group: {'a' * 2**20}")
    assert status == 431


async def test_probes_need_no_certificate(port: Port) -> None:
    async with aiohttp.ClientSession() as session:
        asking = session.get(f"https://{HOST}:{port.port}/healthz", ssl=port.context(), server_hostname=HOST)
        async with asking as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("shown", "groups", "status"),
    [
        (None, [], 403),
        (issued(CLIENTS, "joe"), [], 403),
        (issued(PROXIES, PROXY), ["dev"], 403),
        (issued(PROXIES, PROXY), ["system:masters"], 200),
    ],
)
async def test_a_route_that_asks_for_no_rights_is_for_readers_alone(
    port: Port, shown: Shown | None, groups: list[str], status: int
) -> None:
    async with port.connected(shown) as connection:
        headers = ["X-Remote-User: joe", *(f"X-Remote-Group: {group}" for group in groups)]
        assert (await connection.ask(*headers, path="/metrics"))[0] == status


# -- settings that change


async def test_a_rotated_ca_replaces_the_old_one_while_requests_run(port: Port) -> None:
    old, rotated = issued(PROXIES, PROXY), trustme.CA()
    new = issued(rotated, PROXY)
    both = (PROXIES.cert_pem.bytes() + rotated.cert_pem.bytes()).decode()
    async with port.connected(old) as connection:
        assert (await connection.ask(*JOE))[1][0] == "joe"
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await port.ask(new, *JOE)

        await port.publish(settings(both))
        assert (await connection.ask(*JOE))[1][0] == "joe"
        assert (await port.ask(new, *JOE))[1][0] == "joe"

        await port.publish(settings(rotated.cert_pem.bytes().decode()))
        status, _ = await connection.ask(*JOE)
        assert status == 401, "an open connection is checked again"
        assert b"connection: close" in connection.head, "so that the proxy connects again"
    assert (await port.ask(new, *JOE))[1][0] == "joe"
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await port.ask(old, *JOE)


async def test_a_certificate_that_expires_on_an_open_connection_counts_no_more(port: Port) -> None:
    async with port.connected(issued(PROXIES, PROXY)) as connection:
        assert (await connection.ask(*JOE))[1][0] == "joe"
        await port.calendar.move(timedelta(days=365 * 10).total_seconds())
        assert (await connection.ask(*JOE))[0] == 401


async def test_names_of_headers_come_from_the_settings(port: Port) -> None:
    await port.publish(
        settings(
            requestheader_username_headers='["X-A", "X-B"]',
            requestheader_group_headers='["X-G", "X-H"]',
            requestheader_allowed_names="[]",
        )
    )
    _, seen = await port.ask(issued(PROXIES, "any name"), "X-B: joe", "X-H: ops", "X-G: dev", "X-Remote-User: admin")
    assert seen[:2] == ["joe", ["dev", "ops", "system:authenticated"]]


async def test_unreadable_settings_change_nothing(port: Port) -> None:
    await port.publish(settings(proxies="no certificate"))
    (note,) = port.trust.notes()
    assert "requestheader-client-ca-file: no PEM certificates" in note
    assert (await port.ask(issued(PROXIES, PROXY), *JOE))[1][0] == "joe"

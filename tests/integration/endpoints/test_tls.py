"""TLS: client certificates, and certificates that change while the server runs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import trustme

from aliquot import metrics
from aliquot.endpoints import asgi
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates, Files
from aliquot.errors import BadConfig
from tests.fakes import FakeClock, until

OURS, THEIRS, CLIENTS = trustme.CA(), trustme.CA(), trustme.CA()
HOST = "127.0.0.1"


class Secret:
    """A mounted Secret; `..data` is a symbolic link that changes at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(Path("..data") / name)

    def hold(
        self, authority: trustme.CA, *, clients: trustme.CA = CLIENTS, key: bytes = b"", **dates: datetime
    ) -> None:
        self._count += 1
        version = self.folder / f"..{self._count}"
        version.mkdir()
        pair = authority.issue_cert(HOST, **dates)  # type: ignore[arg-type]
        (version / "tls.crt").write_bytes(b"".join(one.bytes() for one in pair.cert_chain_pems))
        (version / "tls.key").write_bytes(key or pair.private_key_pem.bytes())
        (version / "ca.crt").write_bytes(clients.cert_pem.bytes())
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")

    def files(self, *, mutual: bool = False, least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> Files:
        cert, key, authority = (str(self.folder / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        return Files(cert, key, authority if mutual else "", least=least)


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    made = Secret(tmp_path)
    made.hold(OURS)
    return made


@asynccontextmanager
async def listening(certificates: Certificates) -> AsyncIterator[str]:
    async def answer(_: asgi.Call) -> asgi.Response:
        return asgi.text("ok")

    routes = asgi.Routes({("GET", "/healthz"): asgi.OpenHandler(answer), ("GET", "/"): answer})
    async with Listener(routes, HOST, 0, certificates=certificates) as listener:
        yield f"https://{HOST}:{listener.port}"


def client_of(authority: trustme.CA, signed_by: trustme.CA | None = None) -> ssl.SSLContext:
    """A client that trusts one CA and presents a certificate of another."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if signed_by is not None:
        signed_by.issue_cert("scheduler").configure_cert(context)
    return context


async def get(url: str, context: ssl.SSLContext, path: str = "/") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url + path, ssl=context) as response:
        return response.status, await response.text()


async def test_a_listener_with_certificates_speaks_only_tls(secret: Secret) -> None:
    async with listening(Certificates(secret.files())) as url:
        assert await get(url, client_of(OURS)) == (200, "ok")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(url, client_of(THEIRS))
        with pytest.raises(aiohttp.ClientError):
            await get(url.replace("https", "http"), client_of(OURS))


async def test_a_version_below_the_minimum_is_refused(secret: Secret) -> None:
    old = client_of(OURS)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with listening(Certificates(secret.files())) as url:
        assert await get(url, old) == (200, "ok")
    async with listening(Certificates(secret.files(least=ssl.TLSVersion.TLSv1_3))) as url:
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(url, old)
        assert await get(url, client_of(OURS)) == (200, "ok")


async def test_a_client_that_does_not_read_the_answer_is_disconnected_under_tls_too(
    secret: Secret, clock: FakeClock
) -> None:
    async def long(_: asgi.Call) -> asgi.Response:
        return asgi.Response(bytes(32 * 2**20))

    def ended() -> float:
        return metrics.REGISTRY.get_sample_value("aliquot_rejected_calls_total", {"cause": "slow reader"}) or 0

    before, routes = ended(), asgi.Routes({("GET", "/"): long})
    async with Listener(routes, HOST, 0, certificates=Certificates(secret.files()), clock=clock) as listener:
        _, writer = await asyncio.open_connection(HOST, listener.port, ssl=client_of(OURS))
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: ended() > before, passing=clock)
        writer.transport.abort()


# -- mutual TLS


async def test_a_client_with_a_certificate_of_the_ca_is_served(secret: Secret) -> None:
    async with listening(Certificates(secret.files(mutual=True))) as url:
        assert await get(url, client_of(OURS, CLIENTS)) == (200, "ok")


async def test_a_client_with_a_certificate_of_another_ca_is_refused(secret: Secret) -> None:
    async with listening(Certificates(secret.files(mutual=True))) as url:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await get(url, client_of(OURS, THEIRS), "/healthz")


# -- certificates that change


async def test_new_certificates_are_loaded_and_connections_stay_open(secret: Secret, clock: FakeClock) -> None:
    certificates = Certificates(secret.files(), clock)
    running, before = asyncio.create_task(certificates.run()), applied()
    async with listening(certificates) as url:
        reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]), ssl=client_of(OURS))
        secret.hold(THEIRS)
        await until(lambda: applied() > before, passing=clock)
        assert await get(url, client_of(THEIRS)) == (200, "ok")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(url, client_of(OURS))
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def applied() -> float:
    return metrics.REGISTRY.get_sample_value("aliquot_tls_reloads_total", {"outcome": "applied"}) or 0


async def test_a_removed_client_ca_is_no_longer_trusted(secret: Secret) -> None:
    certificates = Certificates(secret.files(mutual=True))
    async with listening(certificates) as url:
        assert await get(url, client_of(OURS, CLIENTS)) == (200, "ok")
        secret.hold(OURS, clients=THEIRS)
        certificates.look()
        assert await get(url, client_of(OURS, THEIRS)) == (200, "ok")
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await get(url, client_of(OURS, CLIENTS))


async def test_unusable_files_change_nothing_and_are_reported(secret: Secret) -> None:
    certificates = Certificates(secret.files())
    async with listening(certificates) as url:
        secret.hold(THEIRS, key=OURS.issue_cert(HOST).private_key_pem.bytes())
        certificates.look()
        assert await get(url, client_of(OURS)) == (200, "ok")
        (note,) = certificates.notes()
        assert note.startswith("Aliquot keeps the previous certificates: listen.tls.certFile ")
        assert note.endswith("the key does not match the certificate")
        assert metrics.REGISTRY.get_sample_value("aliquot_tls_valid") == 0
        secret.hold(THEIRS)
        certificates.look()
        assert await get(url, client_of(THEIRS)) == (200, "ok")
    assert certificates.notes() == []
    assert metrics.REGISTRY.get_sample_value("aliquot_tls_valid") == 1


# -- expired certificates, and certificates that are not yet valid


def days(clock: FakeClock, count: float) -> datetime:
    """This many days from now."""
    return datetime.fromtimestamp(clock.wall_ns() // 10**9, UTC) + timedelta(days=count)


def is_valid() -> float | None:
    return metrics.REGISTRY.get_sample_value("aliquot_tls_valid")


async def test_an_expired_certificate_does_not_replace_a_valid_one(secret: Secret, clock: FakeClock) -> None:
    certificates = Certificates(secret.files(), clock)
    async with listening(certificates) as url:
        secret.hold(THEIRS, not_after=days(clock, -1))
        certificates.look()
        certificates.look()
        assert await get(url, client_of(OURS)) == (200, "ok")
        (note,) = certificates.notes()
        assert note.startswith("Aliquot keeps the previous certificates: listen.tls.certFile ")
        assert "tls.crt: the certificate expired at 2023-" in note
        assert is_valid() == 0
        secret.hold(THEIRS)
        certificates.look()
        assert await get(url, client_of(THEIRS)) == (200, "ok")
    assert (certificates.notes(), is_valid()) == ([], 1)


async def test_a_certificate_that_is_not_yet_valid_is_loaded_once_it_is(secret: Secret, clock: FakeClock) -> None:
    certificates = Certificates(secret.files(), clock)
    async with listening(certificates) as url:
        before = applied()
        secret.hold(THEIRS, not_before=days(clock, 1))
        certificates.look()
        assert "the certificate is not valid before " in certificates.notes()[0]
        assert await get(url, client_of(OURS)) == (200, "ok")
        await clock.move(86400)
        certificates.look()
        certificates.look()
        assert applied() == before + 1
        assert await get(url, client_of(THEIRS)) == (200, "ok")
    assert (certificates.notes(), is_valid()) == ([], 1)


async def test_a_certificate_that_expires_soon_is_reported(secret: Secret, clock: FakeClock) -> None:
    secret.hold(OURS, not_after=days(clock, 8))
    certificates = Certificates(secret.files(), clock)
    expires = metrics.REGISTRY.get_sample_value("aliquot_tls_expires_timestamp_seconds")
    assert (certificates.notes(), expires) == ([], days(clock, 8).timestamp())
    await clock.move(1.5 * 86400)
    (note,) = certificates.notes()
    assert "tls.crt: the certificate expires at 2023-" in note
    await clock.move(7 * 86400)
    certificates.look()
    (note,) = certificates.notes()
    assert "tls.crt: the certificate expired at 2023-" in note
    assert is_valid() == 0


def test_an_expired_certificate_at_startup_is_used_for_lack_of_another(secret: Secret, clock: FakeClock) -> None:
    secret.hold(OURS, not_after=days(clock, -2))
    certificates = Certificates(secret.files(), clock)
    (note,) = certificates.notes()
    assert "the certificate expired at 2023-" in note
    assert is_valid() == 0


async def test_unchanged_files_are_not_read_again(secret: Secret) -> None:
    certificates = Certificates(secret.files())
    before, reaching = applied(), certificates.reaching
    certificates.look()
    assert (applied(), certificates.reaching) == (before, reaching)


# -- unusable files at startup


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        pytest.param("tls.crt", None, "listen.tls.certFile {folder}/tls.crt: no such file", id="no certificate"),
        pytest.param("tls.key", None, "listen.tls.keyFile {folder}/tls.key: no such file", id="no key"),
        pytest.param("ca.crt", None, "listen.tls.clientCaFile {folder}/ca.crt: no such file", id="no CA"),
        pytest.param("tls.crt", b"nonsense", "certFile {folder}/tls.crt, listen.tls.keyFile", id="not PEM"),
        pytest.param("tls.key", b"", "no PEM certificate that matches the key", id="an empty key"),
        pytest.param("ca.crt", b"nonsense", "ca.crt: the file contains no PEM certificates", id="an invalid CA"),
        pytest.param("ca.crt", b"", "ca.crt: the file contains no PEM certificates", id="an empty CA"),
    ],
)
def test_unusable_files_at_startup_are_named(secret: Secret, name: str, content: bytes | None, text: str) -> None:
    (secret.folder / name).unlink()
    if content is not None:
        (secret.folder / name).write_bytes(content)
    with pytest.raises(BadConfig) as raised:
        Certificates(secret.files(mutual=True))
    assert text.format(folder=secret.folder) in str(raised.value)

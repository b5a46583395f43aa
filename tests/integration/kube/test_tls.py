"""Handshakes with an API server: the cluster's own authority is trusted, and no other."""

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aliquot.kube import NODES, Client, NotSent, from_kubeconfig

OURS, OTHERS = trustme.CA(), trustme.CA()


@asynccontextmanager
async def server(tls: ssl.SSLContext) -> AsyncIterator[str]:
    """An API server with one node; gives its port."""

    async def node(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "n1"}})

    application = web.Application()
    application.router.add_get("/api/v1/nodes/n1", node)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield str(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def issued(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    return context


def kubeconfig(folder: Path, server: str, authority: bytes) -> Path:
    (folder / "ca.crt").write_bytes(authority)
    config: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def node_read(folder: Path, host: str, port: str, authority: bytes) -> str:
    async with Client(from_kubeconfig(kubeconfig(folder, f"https://{host}:{port}", authority))) as client:
        return (await client.get(NODES, "n1")).key


async def test_a_server_of_the_cluster_s_authority_is_trusted(tmp_path: Path) -> None:
    async with server(issued(OURS, "127.0.0.1")) as port:
        assert await node_read(tmp_path, "127.0.0.1", port, OURS.cert_pem.bytes()) == "n1"


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        pytest.param(OTHERS, "127.0.0.1", id="an authority that is not the cluster's"),
        pytest.param(OURS, "api.example", id="a certificate for another host"),
    ],
)
async def test_any_other_server_is_sent_nothing(tmp_path: Path, authority: trustme.CA, name: str) -> None:
    async with server(issued(authority, name)) as port:
        text = f"the API server at https://127.0.0.1:{port} cannot be reached: .*certificate"
        with pytest.raises(NotSent, match=text):
            await node_read(tmp_path, "127.0.0.1", port, OURS.cert_pem.bytes())


async def test_an_authority_without_key_identifiers_is_trusted(tmp_path: Path) -> None:
    """As many clusters have them; Python refuses such a chain by default since 3.13."""
    authority, context = plain_chain(tmp_path)
    async with server(context) as port:
        assert await node_read(tmp_path, "localhost", port, authority) == "n1"


def plain_chain(folder: Path) -> tuple[bytes, ssl.SSLContext]:
    """An authority and a certificate for localhost with no more in them than they need."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    authority = _unsigned("authority", keys[0]).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    leaf = _unsigned("localhost", keys[1]).add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    signed = [
        made.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM) for made in (authority, leaf)
    ]
    private = keys[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(signed[1] + private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    return signed[0], context


def _unsigned(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

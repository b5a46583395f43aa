"""Asks a server's read endpoints for a report, with the caller's own token or certificate."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from aliquot.clock import SystemClock
from aliquot.errors import BadConfig
from aliquot.kube.access import Access, trusting
from aliquot.kube.transport import Transport, decode
from aliquot.plain import why
from aliquot.reports.report import Report

_Asked = TypeVar("_Asked", bound=Report)
_PREFIX = "v1"
_HERE = ("127.0.0.1", "::1", "localhost")


def access_to(server: str, authority: str, own: Access) -> Access:
    """The caller's access, to a server whose certificate is signed by the authority in a file, or without one by any
    that this machine trusts. Raises BadConfig, also where others could read the token on its way."""
    try:
        url = urlsplit(server)
        host = url.hostname or ""
    except ValueError as error:
        raise BadConfig(f"--server {server}: {error}") from error
    if url.scheme not in ("http", "https") or not host:
        raise BadConfig(f"--server {server}: write an address such as https://aliquot.example.com:12340")
    if url.scheme == "http":
        if host not in _HERE:
            raise BadConfig(f"--server {server}: your token could be read on its way; use https")
        return replace(own, server=server.rstrip("/"), tls=None, server_name=None)
    try:
        tls = trusting(Path(authority).read_text() if authority else None)
    except (OSError, ValueError) as error:
        raise BadConfig(f"--server-ca {authority} cannot be used: {why(error)}") from error
    return replace(own, server=server.rstrip("/"), tls=tls, server_name=None)


async def ask(access: Access, what: str, kind: type[_Asked], query: Mapping[str, str], timeout: float) -> _Asked:
    """Raises KubeError."""
    wire = Transport(access, timeout, SystemClock())
    try:
        given = {key: value for key, value in query.items() if value}
        return decode(await wire.read(f"{_PREFIX}/{what}", given), kind)
    finally:
        await wire.close()

"""The cluster's names: answers queries for Services, and says that nothing else exists."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

_DOMAIN = ".svc.cluster.local"
_A, _IN = 1, 1
_NO_ERROR, _NO_SUCH_NAME = 0x8580, 0x8583
_SECONDS_TO_KEEP = 5

Lookup = Callable[[str, str], str | None]
"""The address of a Service by namespace and name."""


class Names(asyncio.DatagramProtocol):
    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # not a subclass of it before Python 3.12

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(answer(data, self._lookup), addr)


def answer(query: bytes, lookup: Lookup) -> bytes:
    """To a query with one question, as every resolver sends it."""
    name, end = _name(query)
    (kind,) = struct.unpack_from("!H", query, end)
    address = _address(name, lookup)
    status = _NO_ERROR if address else _NO_SUCH_NAME
    records = b""
    if address and kind == _A:
        # the name again, by its place in the question
        records = struct.pack("!HHHIH", 0xC00C, _A, _IN, _SECONDS_TO_KEEP, 4) + socket.inet_aton(address)
    header = query[:2] + struct.pack("!HHHHH", status, 1, 1 if records else 0, 0, 0)
    return header + query[12 : end + 4] + records


def _name(query: bytes) -> tuple[str, int]:
    """The name that is asked for, and where it ends."""
    parts, place = [], 12
    while length := query[place]:
        parts.append(query[place + 1 : place + 1 + length].decode("ascii", "replace"))
        place += 1 + length
    return ".".join(parts).lower(), place + 1


def _address(name: str, lookup: Lookup) -> str | None:
    service, _, namespace = name.removesuffix(_DOMAIN).partition(".")
    return lookup(namespace, service) if name.endswith(_DOMAIN) and namespace else None

"""TCP connections that notice when their peer has vanished."""

import asyncio
import errno
import os
import socket
from typing import Any

_CONNECT_SECONDS = 5.0
"""For all addresses of the server together, without the TLS handshake."""
_KEEP_ALIVE = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 30_000,
}


async def connected(host: str, port: int) -> socket.socket:
    """A connection to the first address that accepts one. Raises OSError."""
    loop = asyncio.get_running_loop()
    error: OSError = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    found = await _addresses(host, port)
    for family, kind, protocol, _, address in found:
        try:
            made = _watched_socket(family, kind, protocol)
        except OSError as failed:  # such as a machine without IPv6
            error = failed
            continue
        try:
            async with asyncio.timeout(_CONNECT_SECONDS / len(found)):
                await loop.sock_connect(made, address)
            return made
        except TimeoutError:
            error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        except OSError as failed:
            error = failed
        except BaseException:
            made.close()
            raise
        made.close()
    raise error


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """Only a name takes a thread. Raises OSError."""
    try:
        return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _watched_socket(family: int, kind: int, protocol: int) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    notice_lost_peers(made)
    return made


def notice_lost_peers(made: socket.socket) -> None:
    """Let a socket fail half a minute after its peer has vanished. Connections that a listening socket accepts inherit
    this.

    A watch may be quiet for minutes, so only TCP keep-alive can tell a quiet peer from a dead one.
    """
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)

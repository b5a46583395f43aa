"""Ports for servers that tests start."""

import contextlib
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_NODE_PORT = 30_000
_given: set[int] = set()


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on now, never the same twice.

    Below those of Services and those that the kernel gives to outgoing connections: a server that comes back must find
    its port free.
    """
    end = min(int(_RANGE.read_text().split()[0]), _FIRST_NODE_PORT)
    while True:
        port = random.randrange(end // 2, end)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((address, port))
            _given.add(port)
            return port

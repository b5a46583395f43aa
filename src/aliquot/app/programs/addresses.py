"""Parses addresses and ports as Go programs do."""

import socket

from aliquot.errors import BadConfig

_MAX_PORT = 65_535
EVERY = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
"""All addresses of the machine, IPv6 and IPv4 if it has both."""


def host_and_port(flag: str, text: str) -> tuple[str, int]:
    """`127.0.0.1:3456`, `[::1]:3456`, or `:3456` for all addresses of the machine. Raises BadConfig."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT:
        raise BadConfig(f"{flag} {text}: write ADDRESS:PORT")
    return host.removeprefix("[").removesuffix("]") or EVERY, int(port)


def port_of(text: str, default: int) -> int:
    """The port in $PORT or, as in the originals, the default if it is not a number. Raises BadConfig."""
    try:
        port = int(text)
    except ValueError:
        return default
    if not 0 <= port <= _MAX_PORT:
        raise BadConfig(f"PORT={text} is not a valid port")
    return port

"""Addresses and ports as Go programs are told them."""

import socket

from aliquot.errors import BadConfig

_MAX = 65_535
EVERY = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
"""Every address of the machine, of both families where it has both."""


def host_and_port(flag: str, text: str) -> tuple[str, int]:
    """`127.0.0.1:3456`, `[::1]:3456`, or `:3456` for every address of the machine. Raises BadConfig."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX:
        raise BadConfig(f"{flag} {text}: write ADDRESS:PORT")
    return host.removeprefix("[").removesuffix("]") or EVERY, int(port)


def port_of(text: str, default: int) -> int:
    """A variable that is no number counts as not set, as in the originals. Raises BadConfig for one that is no port."""
    try:
        port = int(text)
    except ValueError:
        return default
    if not 0 <= port <= _MAX:
        raise BadConfig(f"PORT={text} is no port")
    return port

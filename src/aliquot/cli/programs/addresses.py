"""Addresses and ports as Go programs are told them."""

from aliquot.errors import BadConfig

_MOST = 65_535


def host_and_port(flag: str, text: str) -> tuple[str, int]:
    """`127.0.0.1:3456`, `[::1]:3456`, or `:3456` for every address of the machine. Raises BadConfig."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MOST:
        raise BadConfig(f"{flag} {text}: write ADDRESS:PORT")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def port_of(text: str, default: int) -> int:
    """A variable that is no number counts as not set, as in the originals."""
    return int(text) if text.isdecimal() and int(text) <= _MOST else default

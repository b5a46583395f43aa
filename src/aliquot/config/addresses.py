"""What can be an address to listen on, or to reach somebody at."""

import ipaddress
import re

_HOST = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}(?<!-)")
_NUMBERS = re.compile(r"[0-9.]*")


def is_loopback(text: str) -> bool:
    """Whether nobody but this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text == "localhost"


def is_address(text: str) -> bool:
    """An IP address, or what could be the name of a machine; whether there is one, only the network knows."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None and _NUMBERS.fullmatch(text) is None and ".." not in text
    return True

"""Checks of IP addresses and host names."""

import ipaddress
import re

_HOST = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}(?<!-)")
_NUMBERS = re.compile(r"[0-9.]*")


def is_loopback(text: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text == "localhost"


def is_address(text: str) -> bool:
    """Whether the text is an IP address or a valid host name. The host need not exist."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None and _NUMBERS.fullmatch(text) is None and ".." not in text
    return True

"""A network namespace beside the machine's, in which every address of one range is local.

Listening there conflicts with nobody: a program may listen on the same port on every address of the machine. The
namespace lives as long as its process, and takes its link and routes with it.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_OWN = Path("/proc/thread-self/ns/net")


class SideNetwork:
    """Sockets can be made inside; everything else of the process stays outside."""

    def __init__(self, link: str, addresses: str, gateway: str) -> None:
        """`link` is its name on the machine, `gateway` an address of the machine."""
        self._outside = os.open(_OWN, os.O_RDONLY)
        _call("unshare", _CLONE_NEWNET)
        self._inside = os.open(_OWN, os.O_RDONLY)
        try:
            # the parent is outside
            _ip("link", "add", "outside", "type", "veth", "peer", "name", link, "netns", str(os.getppid()))
            for name in ("lo", "outside"):
                _ip("link", "set", name, "up")
            _ip("route", "add", "local", addresses, "dev", "lo")
            _ip("route", "add", "default", "via", gateway, "dev", "outside", "onlink")
        finally:
            _call("setns", self._outside, _CLONE_NEWNET)
        _ip("link", "set", link, "up")
        _ip("route", "add", addresses, "dev", link, "src", gateway)

    def socket(self, kind: socket.SocketKind, address: tuple[str, int]) -> socket.socket:
        """Bound inside."""
        with self._entered():
            made = socket.socket(socket.AF_INET, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)
        made.bind(address)
        return made

    @contextmanager
    def _entered(self) -> Iterator[None]:
        _call("setns", self._inside, _CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", self._outside, _CLONE_NEWNET)


def _call(name: str, *arguments: int) -> None:
    """Of the C library: Python has these from 3.12 on."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)

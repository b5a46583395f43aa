"""Callers that cost little themselves: bytes made beforehand, a socket and a thread for each."""

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.rig.network import LOOPBACK

_PIECE = 2**20


class Caller:
    """One connection, kept open as kube-scheduler does."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._into = bytearray(_PIECE)

    def close(self) -> None:
        self._socket.close()

    def post(self, request: bytes) -> bytes:
        """The body of the answer, which must be a 200."""
        self._socket.sendall(request)
        got = bytearray()
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self._received()
        head = bytes(got[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise AssertionError(bytes(got).decode(errors="replace"))
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        pieces = [bytes(got[end + 4 :])]
        left = length - len(pieces[0])
        while left:
            pieces.append(self._received())
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _received(self) -> bytes:
        count = self._socket.recv_into(self._into)
        if not count:
            raise AssertionError("the server has closed the connection")
        return bytes(self._into[:count])


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def together(callers: Sequence[Caller], requests: Sequence[Sequence[bytes]], turns: int) -> list[float]:
    """Each caller sends all requests of a group one after the other, so many times; the seconds of every time. Groups
    take turns."""

    def one(caller: Caller) -> list[float]:
        taken = []
        for turn in range(turns):
            began = time.perf_counter()
            for each in requests[turn % len(requests)]:
                caller.post(each)
            taken.append(time.perf_counter() - began)
        return taken

    if len(callers) == 1:
        return one(callers[0])
    with ThreadPoolExecutor(len(callers)) as pool:
        return [seconds for taken in pool.map(one, callers) for seconds in taken]

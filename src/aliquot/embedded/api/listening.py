"""The listening socket. It can close and open again on the same port while the server keeps running."""

import asyncio
import socket

from aiohttp import web


class ListeningSocket:
    """A listening socket. While it is shut, it refuses connections like a machine without a server."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server: web.Server | None = None
        self._bound: socket.socket | None = None
        self._listening: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. Raises RuntimeError before the first opening."""
        if self._bound is None:
            raise RuntimeError("the embedded cluster is not running")
        return self._host, self._port

    @property
    def is_open(self) -> bool:
        return self._listening is not None

    async def open(self, server: web.Server | None = None) -> None:
        """Listen. The first call names the server."""
        self._server = server or self._server
        assert self._server is not None, "an endpoint is first opened for a server"
        if self._bound is None:
            self._bound = self._bind()
        if self._listening is None:
            self._listening = await asyncio.get_running_loop().create_server(self._server, sock=self._bound)

    def shut(self) -> None:
        """Refuse connections, and cut open ones. The socket stays bound, so the port stays ours."""
        if self._listening is None:
            return
        self._stop_listening()
        self._bound = self._bind()
        assert self._server is not None, "it was opened"
        for connection in self._server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def close(self) -> None:
        """Close for good. The server closes open connections."""
        self._stop_listening()
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((self._host, self._port))
        self._port = bound.getsockname()[1]
        return bound

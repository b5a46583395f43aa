"""TLS of the query API's port: our newest certificate, and the CAs that may have signed a client's.

Both change while the port is open. CAs cannot be taken out of a context, so each change makes a new one.
"""

import os
import ssl
from typing import Any

from aliquot.endpoints.tls import server_context


class QueryTls:
    """`serving` is never replaced: it hands each handshake to the context that `use` made last."""

    def __init__(self, least: ssl.TLSVersion, chain: bytes, key: bytes, client_cas: str) -> None:
        self._least = least
        self._current = self._context(chain, key, client_cas)
        self.serving = server_context(least)
        # a handshake keeps the mode of the context that it began with
        self.serving.verify_mode = ssl.CERT_OPTIONAL
        self.serving.sni_callback = self._hand_over

    def use(self, chain: bytes, key: bytes, client_cas: str) -> None:
        """Serve this certificate, and accept client certificates of these CAs. Raises ssl.SSLError."""
        self._current = self._context(chain, key, client_cas)

    def _context(self, chain: bytes, key: bytes, client_cas: str) -> ssl.SSLContext:
        context = server_context(self._least)
        # most callers have a token or nothing
        context.verify_mode = ssl.CERT_OPTIONAL
        # an intermediate CA may be trusted without its root, as in Go
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        load_pair(context, chain, key)
        if client_cas:
            context.load_verify_locations(cadata=client_cas)
        return context

    def _hand_over(self, handshake: Any, _: str | None, __: ssl.SSLContext) -> None:
        handshake.context = self._current


def load_pair(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Python loads certificates only from files. This one is in memory, so that the key is never on a disk."""
    file = os.memfd_create("certificate")
    try:
        os.write(file, chain + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    finally:
        os.close(file)

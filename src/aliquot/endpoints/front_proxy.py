"""Users in the headers of a front proxy: kube-apiserver, which has authenticated them for an aggregated API.

Anyone can send such headers. They count only on a connection whose certificate belongs to a front proxy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self
from urllib.parse import unquote

import msgspec

from aliquot.endpoints.client_certificates import Authorities, ClientCertificate
from aliquot.kube.reviews import User

Headers = Sequence[tuple[bytes, bytes]]
"""As in ASGI: names in lower case, repeated headers in their order."""


@dataclass(frozen=True)
class FrontProxies:
    """Which front proxies to believe, and in which headers they name users."""

    authorities: Authorities = field(default_factory=Authorities)
    names: frozenset[str] = frozenset()
    """Common names of front proxies. Empty: any."""
    user_headers: tuple[bytes, ...] = ()
    uid_headers: tuple[bytes, ...] = ()
    group_headers: tuple[bytes, ...] = ()
    extra_prefixes: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """From the ConfigMap that kube-apiserver publishes. Raises ValueError, which names the key."""

        def words(key: str) -> tuple[str, ...]:
            try:
                return tuple(msgspec.json.decode(settings.get(f"requestheader-{key}") or "[]", type=list[str]))
            except msgspec.DecodeError as error:
                raise ValueError(f"requestheader-{key}: {error}") from error

        def headers(key: str) -> tuple[bytes, ...]:
            return tuple(word.lower().encode() for word in words(key) if word)

        return cls(
            authorities_of(settings, "requestheader-client-ca-file"),
            frozenset(words("allowed-names")),
            headers("username-headers"),
            headers("uid-headers"),
            headers("group-headers"),
            headers("extra-headers-prefix"),
        )

    def include(self, shown: ClientCertificate, now: datetime) -> bool:
        """Whether this certificate belongs to a front proxy."""
        return (not self.names or shown.user in self.names) and self.authorities.vouch_for(shown, now)

    def user(self, headers: Headers) -> User | None:
        """The user whom a front proxy names; None if it names nobody."""
        name = self._first(headers, self.user_headers)
        if not name:
            return None
        groups = [_text(value) for wanted in self.group_headers for header, value in headers if header == wanted]
        extra: dict[str, list[str]] = {}
        for header, value in headers:
            for prefix in self.extra_prefixes:
                if header.startswith(prefix):
                    extra.setdefault(unquote(_text(header[len(prefix) :])), []).append(_text(value))
        return User(name, self._first(headers, self.uid_headers), groups, extra)

    def are_named_in(self, header: bytes) -> bool:
        """Whether front proxies say something about users in this header."""
        named = (*self.user_headers, *self.uid_headers, *self.group_headers)
        return header in named or header.startswith(self.extra_prefixes)

    def _first(self, headers: Headers, names: tuple[bytes, ...]) -> str:
        """The first header of each name, and the first of these with a value, as Go's servers read them."""
        firsts = (next((value for header, value in headers if header == name), b"") for name in names)
        return _text(next(filter(None, firsts), b""))


def authorities_of(settings: Mapping[str, str], key: str) -> Authorities:
    """The CAs under a key, if any. Raises ValueError, which names the key."""
    pem = settings.get(key, "")
    if not pem.strip():
        return Authorities()
    try:
        return Authorities.of(pem)
    except ValueError as error:
        raise ValueError(f"{key}: no PEM certificates") from error


def _text(value: bytes) -> str:
    """kube-apiserver writes names as UTF-8."""
    return value.decode(errors="replace")

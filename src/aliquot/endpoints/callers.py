"""Identify a caller as scheduler, replica or reader, by client certificate or Kubernetes token.

As in Kubernetes, a certificate's common name is the user and its organizations are the groups.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from aliquot import metrics
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import Caller, CallerKind
from aliquot.endpoints.tokens import Tokens
from aliquot.errors import Refused
from aliquot.kube.reviews import User
from aliquot.plain import why

USERS: Mapping[str, CallerKind] = {"system:kube-scheduler": CallerKind.SCHEDULER}
GROUPS: Mapping[str, CallerKind] = {"system:masters": CallerKind.READER, "kubeadm:cluster-admins": CallerKind.READER}
"""Defaults; the configuration can override each entry."""

AUTHORIZATION = b"authorization"
_BEARER = b"bearer "
_ASK = ((b"www-authenticate", b"Bearer"),)
_UNKNOWN = metrics.REJECTED.labels("unknown caller")
_WRONG_KIND = metrics.REJECTED.labels("caller of another kind")


@dataclass(frozen=True)
class Known:
    """Map users and groups to kinds of callers; `None` removes a default."""

    users: Mapping[str, CallerKind | None] = field(default_factory=dict)
    groups: Mapping[str, CallerKind | None] = field(default_factory=dict)
    replica_name: str = ""
    """A caller with a certificate for this name is a replica; replicas require it of each other."""

    def kinds(self, user: str, groups: Iterable[str], names: Iterable[str] = ()) -> frozenset[CallerKind]:
        users, known_groups = {**USERS, **self.users}, {**GROUPS, **self.groups}
        found = {users.get(user), *(known_groups.get(group) for group in groups)}
        if self.replica_name and self.replica_name in names:
            found.add(CallerKind.REPLICA)
        return frozenset(kind for kind in found if kind is not None)


class Peer(Protocol):
    """The other end of a connection."""

    async def caller(self, scope: asgi.Scope) -> Caller | asgi.Response:
        """Who sends this request. Returns an error answer if nobody can say."""

    def refusal(self, caller: Caller, wanted: frozenset[CallerKind]) -> asgi.Response | None:
        """The answer to a caller of none of these kinds; None if the caller may go on."""


class PortCallers(Protocol):
    """Tells who the callers of a port are."""

    def peer(self, transport: asyncio.BaseTransport) -> Peer: ...


class Callers:
    """Identify the callers of a port that serves only known callers. `own_token` returns our token for other
    replicas."""

    def __init__(self, known: Known, tokens: Tokens, own_token: Callable[[], str] = str) -> None:
        self.known = known
        self._tokens = tokens
        self._own_token = own_token

    def peer(self, transport: asyncio.BaseTransport) -> "CertifiedPeer":
        return CertifiedPeer(self, self.by_certificate(transport.get_extra_info("peercert")))

    def by_certificate(self, shown: Mapping[str, Any] | None) -> Caller | None:
        """Identify a connection by its client certificate, as ssl reports it; None without a certificate."""
        if not shown:
            return None
        subject = [pair for part in shown.get("subject", ()) for pair in part]
        user = next((value for name, value in subject if name == "commonName"), "")
        groups = [value for name, value in subject if name == "organizationName"]
        names = [value for _, value in shown.get("subjectAltName", ())]
        name = user or "a certificate without a common name"
        return Caller(name, self.known.kinds(user, groups, names), tuple(groups))

    async def identify(self, certified: Caller | None, proof: bytes) -> Caller | asgi.Response:
        """Identify a caller by the connection's certificate, or else by the Authorization header. Returns an error
        answer if both fail."""
        if certified is not None and (certified.kinds or not proof):
            return certified
        token = token_of(proof)
        if token is None:
            _UNKNOWN.inc()
            return asgi.text("present a client certificate or a Kubernetes token (Authorization: Bearer)", 401, _ASK)
        try:
            found = await self.by_token(token)
        except Refused as error:
            _UNKNOWN.inc()
            return asgi.text(str(error), 503)
        if found is None:
            _UNKNOWN.inc()
            return asgi.text("the API server does not recognize this token", 401, _ASK)
        return found

    async def by_token(self, token: str) -> Caller | None:
        """Identify a caller by its token; None if the API server does not recognize it. Raises Refused."""
        user = await self._tokens.user(token)
        if user is None:
            return None
        caller = self.of_user(user)
        is_ours = user.username == await self._own_user()
        return replace(caller, kinds=caller.kinds | {CallerKind.REPLICA}) if is_ours else caller

    def of_user(self, user: User) -> Caller:
        groups = tuple(user.groups or ())
        extra = tuple((key, tuple(values)) for key, values in sorted((user.extra or {}).items()))
        return Caller(user.username, self.known.kinds(user.username, groups), groups, user.uid, extra)

    async def _own_user(self) -> str:
        """Raises Refused."""
        try:
            token = self._own_token()
        except OSError as error:
            raise Refused(f"this server cannot read its token for other replicas: {why(error)}") from error
        user = await self._tokens.user(token, is_ours=True) if token else None
        return user.username if user is not None else ""


@dataclass(frozen=True)
class CertifiedPeer:
    """A connection with a client certificate, or without one."""

    callers: Callers
    certified: Caller | None

    async def caller(self, scope: asgi.Scope) -> Caller | asgi.Response:
        proof = next((value for name, value in scope["headers"] if name == AUTHORIZATION), b"")
        return await self.callers.identify(self.certified, proof)

    def refusal(self, caller: Caller, wanted: frozenset[CallerKind]) -> asgi.Response | None:
        return refusal(caller, wanted)


def token_of(proof: bytes) -> str | None:
    """The token in an Authorization header; None if it has none."""
    if proof[: len(_BEARER)].lower() != _BEARER:
        return None
    return proof[len(_BEARER) :].strip().decode("latin-1")


def refusal(caller: Caller, wanted: frozenset[CallerKind]) -> asgi.Response | None:
    """The 403 for a caller of another kind; None if the kind is right."""
    if caller.kinds & wanted:
        return None
    _WRONG_KIND.inc()
    kinds = " or ".join(sorted(kind.value for kind in wanted))
    has = f"kind {', '.join(sorted(kind.value for kind in caller.kinds))}" if caller.kinds else "no kind"
    return asgi.text(f"{caller.name} has {has}; this route requires {kinds} (callers.users, callers.groups)", 403)

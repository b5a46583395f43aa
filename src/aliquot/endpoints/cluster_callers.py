"""Identify callers as API servers do: by front proxy, client certificate or token, or else as anonymous.

What a caller may do is then a question of its rights in Kubernetes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from aliquot import metrics
from aliquot.apiserver.statuses import Unauthorized
from aliquot.clock import Clock, utc
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import Caller, CallerKind
from aliquot.endpoints.callers import AUTHORIZATION, Callers, refusal, token_of
from aliquot.endpoints.client_certificates import Authorities, ClientCertificate
from aliquot.endpoints.cluster_trust import ClusterTrust
from aliquot.endpoints.status_answers import status_answer, unavailable
from aliquot.errors import Refused
from aliquot.kube.reviews import User

ANONYMOUS = Caller("system:anonymous", frozenset(), ("system:unauthenticated",))
_AUTHENTICATED = "system:authenticated"
_UNKNOWN = metrics.REJECTED.labels("unknown caller")


class ClusterCallers:
    """Callers of a port that is an aggregated API. `replicas` returns the CAs whose certificates prove that a caller is
    a replica, if it has the replicas' name; `clients` those of users, besides the cluster's."""

    def __init__(
        self,
        callers: Callers,
        trust: ClusterTrust,
        clock: Clock,
        replicas: Callable[[], Authorities],
        clients: Callable[[], Authorities] = Authorities,
    ) -> None:
        self.callers = callers
        self.trust = trust
        self.replicas = replicas
        self.clients = clients
        self.clock = clock

    def peer(self, transport: asyncio.BaseTransport) -> "ClusterPeer":
        return ClusterPeer(self, ClientCertificate.of_connection(transport))


class ClusterPeer:
    """The other end of a connection."""

    def __init__(self, port: ClusterCallers, shown: ClientCertificate | None) -> None:
        self._port = port
        self._shown = shown

    async def caller(self, scope: asgi.Scope) -> Caller | asgi.Response:
        """Who sends a request. Removes the credentials from its headers: nobody else needs them."""
        headers, proxies = list(scope["headers"]), self._port.trust.current.front_proxies
        scope["headers"] = [
            (name, value) for name, value in headers if name != AUTHORIZATION and not proxies.are_named_in(name)
        ]
        if self._shown is not None and (found := self._by_certificate(self._shown, headers)) is not None:
            return found
        token = token_of(next((value for name, value in headers if name == AUTHORIZATION), b""))
        if token is not None:
            return await self._by_token(token)
        if self._shown is None:
            return ANONYMOUS
        _UNKNOWN.inc()
        # the client may have a newer certificate, which it can only present in a new connection
        untrusted = Unauthorized("nobody trusts this client certificate, or not any more")
        return status_answer(untrusted, (b"connection", b"close"))

    def refusal(self, caller: Caller, wanted: frozenset[CallerKind]) -> asgi.Response | None:
        """The scheduler's verbs ask for the caller's rights in Kubernetes themselves."""
        return None if CallerKind.SCHEDULER in wanted else refusal(caller, wanted)

    def _by_certificate(self, shown: ClientCertificate, headers: Sequence[tuple[bytes, bytes]]) -> Caller | None:
        port, now = self._port, utc(self._port.clock)
        trust, known = port.trust.current, port.callers.known
        if trust.front_proxies.include(shown, now):
            user = trust.front_proxies.user(headers)
            return self._caller(user) if user is not None else None
        if known.replica_name and known.replica_name in shown.dns_names and port.replicas().vouch_for(shown, now):
            return Caller(shown.user, frozenset({CallerKind.REPLICA}), (*shown.groups, _AUTHENTICATED))
        if shown.user and (trust.clients.vouch_for(shown, now) or port.clients().vouch_for(shown, now)):
            return self._caller(User(shown.user, groups=list(shown.groups)))
        return None

    async def _by_token(self, token: str) -> Caller | asgi.Response:
        try:
            found = await self._port.callers.by_token(token)
        except Refused as error:
            _UNKNOWN.inc()
            return unavailable(str(error))
        if found is None:
            _UNKNOWN.inc()
            return status_answer(Unauthorized())
        return _authenticated(found)

    def _caller(self, user: User) -> Caller:
        return _authenticated(self._port.callers.of_user(user))


def _authenticated(caller: Caller) -> Caller:
    """Everybody who is known has this group. Discovery by kube-apiserver depends on it."""
    if caller.name == ANONYMOUS.name or {_AUTHENTICATED, *ANONYMOUS.groups} & set(caller.groups):
        return caller
    return replace(caller, groups=(*caller.groups, _AUTHENTICATED))

"""Forward calls: any replica accepts them, the leader decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
import structlog

from aliquot import metrics
from aliquot.control import ControlPlane, Role
from aliquot.endpoints import access_log, asgi
from aliquot.endpoints.asgi import CallerKind
from aliquot.endpoints.tls import ReachesReplicas

_log = structlog.get_logger()

_MARK = "X-Aliquot-Forwarded"
_REACH_SECONDS = 1.0
_NOT_ACCEPTED = (401, 403)
_LONGEST = 500


@dataclass(frozen=True)
class Way:
    """How to reach an endpoint of another replica. With certificates, a leader that speaks TLS must present a
    certificate for `tls_name` or its address. `token` proves that we are a replica if our certificate does not; it may
    raise OSError."""

    certificates: ReachesReplicas | None = None
    tls_name: str = ""
    token: Callable[[], str] = str


class Forwarder:
    """Wrap handlers so that the leader answers. Use it with `async with`."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        seconds: float,
        way: Way | None = None,
        ways: Mapping[str, Way] | None = None,
    ) -> None:
        """`ways` are those of endpoints that have one of their own."""
        self._plane = plane
        self._way = way or Way()
        self._ways = ways or {}
        self._limit = aiohttp.ClientTimeout(total=seconds, sock_connect=_REACH_SECONDS)
        self._session: aiohttp.ClientSession | None = None
        self._logged: set[str] = set()
        """Endpoints whose forwarding failure is already in the log."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=self._limit, connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def to_leader(
        self, endpoint: str, verb: str, handler: asgi.Handler, fault: Callable[[str], asgi.Response]
    ) -> asgi.Handler:
        """Wrap a handler so that a follower forwards its calls to the leader; `fault` words an error for the
        endpoint."""

        async def answer(call: asgi.Call) -> asgi.Response:
            if self._plane.leadership.role is not Role.FOLLOWING:
                self._logged.discard(endpoint)
                return await handler(call)
            answered = await self._forward(endpoint, call)
            if isinstance(answered, asgi.Response):
                metrics.FORWARDED.labels(verb, "answered").inc()
                self._logged.discard(endpoint)
                return answered
            metrics.FORWARDED.labels(verb, "failed").inc()
            if endpoint not in self._logged:  # log once until it works again: schedulers call all the time
                self._logged.add(endpoint)
                _log.warning("cannot forward calls to the leader", endpoint=endpoint, why=answered)
            return fault(answered)

        return answer

    async def _forward(self, endpoint: str, call: asgi.Call) -> asgi.Response | str:
        """The leader's answer, or the reason why there is none."""
        leadership = self._plane.leadership
        if why := leadership.no_holder():
            missing = self._plane.out_of_sync()
            return f"{why}; out of sync with the API server: {'; '.join(missing)}" if missing else why
        if _MARK.lower().encode() in call.headers and CallerKind.REPLICA in call.caller.kinds:
            return f"another server forwarded this call here, but the leader is {leadership.holder}"
        url = leadership.endpoints.get(endpoint, "")
        if not url:
            return f"the leader {leadership.holder} has no {endpoint} endpoint"
        assert self._session is not None, "use the forwarder with `async with`"
        way = self._ways.get(endpoint, self._way)
        try:
            headers = {
                _MARK: "1",
                "Content-Type": "application/json",
                access_log.ON_BEHALF_OF: access_log.introduced(call),
            }
            if url.startswith("https:") and (token := way.token()):
                headers["Authorization"] = f"Bearer {token}"
            trust = way.certificates.reaching if way.certificates else True
            asking = self._session.post(
                url + call.path, data=call.body, headers=headers, ssl=trust, server_hostname=way.tls_name or None
            )
            async with asking as response:
                if response.status in _NOT_ACCEPTED:
                    said = (await response.text(errors="replace"))[:_LONGEST]
                    return f"the leader {leadership.holder} does not accept this server as a replica: {said}"
                content = response.headers.get("Content-Type", "application/json").encode()
                return asgi.Response(await response.read(), response.status, content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            text = str(error) or "timed out"
            return f"the leader {leadership.holder} did not answer at {url}: {text}"

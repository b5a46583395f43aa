"""Whose a Kubernetes token is: asked of the API server by TokenReview, and remembered for a while."""

import asyncio
from dataclasses import dataclass
from hashlib import sha256

from aliquot.clock import Clock
from aliquot.control.rights import REVIEW_TOKENS
from aliquot.errors import Refused
from aliquot.kube import Client, KubeError
from aliquot.kube.errors import Forbidden
from aliquot.kube.reviews import User, whose

_KNOWN_SECONDS = 60.0
_UNKNOWN_SECONDS = 10.0
_MOST = 1024
"""Tokens that are remembered; of more, the one that was reviewed longest ago is forgotten."""
_MOST_AT_ONCE = 8
"""Reviews: made-up tokens must not keep the API server busy."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    user: User | None
    until: float


class Tokens:
    def __init__(self, client: Client, clock: Clock, audience: str = "") -> None:
        self._client = client
        self._clock = clock
        self._audiences = (audience,) if audience else ()
        self._reviewed: dict[bytes, _Reviewed] = {}
        self._asking: dict[bytes, asyncio.Task[User | None]] = {}
        self._is_forbidden = False

    def notes(self) -> list[str]:
        """What people should know."""
        return [f"{REVIEW_TOKENS}; the rule to add: {REVIEW_TOKENS.rule()}"] if self._is_forbidden else []

    async def check(self) -> None:
        """Learn whether we may ask at all, before anybody calls."""
        try:
            self._is_forbidden = not await REVIEW_TOKENS.is_given(self._client)
        except KubeError:
            return  # the first token will tell

    async def user(self, token: str) -> User | None:
        """None if it is nobody's. Raises Refused if that cannot be known now."""
        digest, now = sha256(token.encode()).digest(), self._clock.monotonic()
        known = self._reviewed.get(digest)
        if known is not None and known.until > now:
            return known.user
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= _MOST_AT_ONCE:
                raise Refused("too many tokens are reviewed at this moment; try again")
            asking = self._asking[digest] = asyncio.create_task(self._review(digest, token))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return await asyncio.shield(asking)

    async def _review(self, digest: bytes, token: str) -> User | None:
        try:
            user = await whose(self._client, token, self._audiences)
        except Forbidden as error:
            self._is_forbidden = True
            raise Refused("this server cannot review tokens: /readyz has the rule to add") from error
        except KubeError as error:
            raise Refused(f"the API server did not review the token: {error}") from error
        self._is_forbidden = False
        seconds = _UNKNOWN_SECONDS if user is None else _KNOWN_SECONDS
        self._reviewed.pop(digest, None)
        self._reviewed[digest] = _Reviewed(user, self._clock.monotonic() + seconds)
        if len(self._reviewed) > _MOST:
            del self._reviewed[next(iter(self._reviewed))]
        return user

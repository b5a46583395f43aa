"""Resolve a Kubernetes token to its user by TokenReview, and cache the result."""

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from aliquot.clock import Clock
from aliquot.control.leadership.rights import REVIEW_TOKENS
from aliquot.errors import Refused
from aliquot.kube import Client, KubeError
from aliquot.kube.errors import Forbidden
from aliquot.kube.reviews import User, whose
from aliquot.model.bounds import MAX_ACCEPTED_TOKENS, MAX_REFUSED_TOKENS, MAX_REVIEWS

_KNOWN_SECONDS = 60.0
_UNKNOWN_SECONDS = 10.0

_Asking = dict[bytes, asyncio.Task[User | None]]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Accepted:
    user: User
    until: float
    """When we must review it again."""


class Tokens:
    """Users by token. Anyone can make tokens up, so accepted tokens have their own cache and reviews: a flood of other
    tokens neither evicts nor delays them."""

    def __init__(self, client: Client, clock: Clock, audience: str = "") -> None:
        self._client = client
        self._clock = clock
        self._audiences = (audience,) if audience else ()
        self._accepted: dict[bytes, _Accepted] = {}
        self._refused: dict[bytes, float] = {}
        self._asking_again: _Asking = {}
        self._asking: _Asking = {}
        self._is_forbidden = False

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        return [f"{REVIEW_TOKENS}; the rule to add: {REVIEW_TOKENS.rule()}"] if self._is_forbidden else []

    async def check(self) -> None:
        """Check before the first call whether we may review tokens."""
        try:
            self._is_forbidden = not await REVIEW_TOKENS.is_given(self._client)
        except KubeError:
            return  # the first token will tell

    async def user(self, token: str, *, is_ours: bool = False) -> User | None:
        """The user of a token; None for an unknown token. Our own token counts as accepted. Raises Refused if we cannot
        review the token now."""
        digest, now = sha256(token.encode()).digest(), self._clock.monotonic()
        known = self._accepted.get(digest)
        if known is not None and known.until > now:
            _put_last(self._accepted, digest, known, MAX_ACCEPTED_TOKENS)
            return known.user
        if self._refused.get(digest, now) > now:
            return None
        return await self._ask(digest, token, self._asking_again if is_ours or known is not None else self._asking)

    async def _ask(self, digest: bytes, token: str, place: _Asking) -> User | None:
        asking = place.get(digest)
        if asking is None:
            if len(place) >= MAX_REVIEWS:
                raise Refused("this server is already reviewing too many tokens; try again")
            asking = place[digest] = asyncio.create_task(self._review(digest, token))
            asking.add_done_callback(lambda _: place.pop(digest, None))
        return await asyncio.shield(asking)

    async def _review(self, digest: bytes, token: str) -> User | None:
        try:
            user = await whose(self._client, token, self._audiences)
        except Forbidden as error:
            self._is_forbidden = True
            raise Refused("this server may not review tokens; /readyz shows the RBAC rule to add") from error
        except KubeError as error:
            raise Refused(f"the API server did not review the token: {error}") from error
        self._is_forbidden = False
        self._remember(digest, user)
        return user

    def _remember(self, digest: bytes, user: User | None) -> None:
        now = self._clock.monotonic()
        if user is None:
            self._accepted.pop(digest, None)
            _put_last(self._refused, digest, now + _UNKNOWN_SECONDS, MAX_REFUSED_TOKENS)
        else:
            self._refused.pop(digest, None)
            _put_last(self._accepted, digest, _Accepted(user, now + _KNOWN_SECONDS), MAX_ACCEPTED_TOKENS)


def _put_last(place: dict[bytes, _Value], digest: bytes, value: _Value, most: int) -> None:
    """Append an entry; drop the oldest if there are too many."""
    place.pop(digest, None)
    place[digest] = value
    if len(place) > most:
        del place[next(iter(place))]

"""What callers may see by their own rights in Kubernetes: SubjectAccessReviews, cached."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from aliquot.clock import Clock
from aliquot.control.leadership.rights import REVIEW_ACCESS
from aliquot.endpoints.asgi import ANYONE, Caller
from aliquot.errors import Refused
from aliquot.kube import Client, KubeError
from aliquot.kube.errors import Forbidden
from aliquot.kube.reviews import Action, User, may
from aliquot.model.bounds import MAX_KNOWN_RIGHTS, MAX_REVIEWS, MAX_WAITING_REVIEWS

_GIVEN_SECONDS = 60.0
_WITHHELD_SECONDS = 10.0
_MASTERS = "system:masters"
"""The group that every API server allows everything."""


@dataclass(frozen=True, slots=True)
class _Question:
    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    action: Action


class OwnRights:
    """Answers are kept for a while, and only so many. Whoever has lost a right keeps it for `given_seconds` more. Only
    so many reviews run at a time, and only so many more wait for one."""

    def __init__(self, client: Client, clock: Clock, given_seconds: float = _GIVEN_SECONDS) -> None:
        self._client = client
        self._clock = clock
        self._given_seconds = given_seconds
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._known: OrderedDict[_Question, tuple[bool, float]] = OrderedDict()
        self._asking: dict[_Question, asyncio.Task[bool]] = {}

    async def allow(self, caller: Caller, action: Action) -> bool:
        """Whether a caller may do this in Kubernetes. On a port that answers anyone, everybody may. Raises Refused if
        we cannot find out now."""
        if caller is ANYONE or _MASTERS in caller.groups:
            return True
        question = _Question(caller.name, caller.uid, caller.groups, caller.extra, action)
        known = self._known.get(question)
        if known is not None and known[1] > self._clock.monotonic():
            self._known.move_to_end(question)
            return known[0]
        asking = self._asking.get(question)
        if asking is None:
            if len(self._asking) >= MAX_WAITING_REVIEWS:
                raise Refused("this server is already reviewing the rights of too many callers; try again")
            asking = self._asking[question] = asyncio.create_task(self._review(question))
            asking.add_done_callback(lambda _: self._asking.pop(question, None))
        return await asyncio.shield(asking)

    async def _review(self, question: _Question) -> bool:
        extra = {key: list(values) for key, values in question.extra}
        user = User(username=question.user, uid=question.uid, groups=list(question.groups), extra=extra)
        try:
            async with self._slots:
                allowed = (await may(self._client, user, question.action)).allowed
        except Forbidden as error:
            raise Refused(f"{REVIEW_ACCESS}; the rule to add: {REVIEW_ACCESS.rule()}") from error
        except KubeError as error:
            raise Refused(f"the API server did not review what {question.user} may see: {error}") from error
        until = self._clock.monotonic() + (self._given_seconds if allowed else _WITHHELD_SECONDS)
        self._known[question] = allowed, until
        self._known.move_to_end(question)
        if len(self._known) > MAX_KNOWN_RIGHTS:
            self._known.popitem(last=False)
        return allowed

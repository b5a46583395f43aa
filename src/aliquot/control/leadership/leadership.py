"""Leader election: only the Lease holder may commit, in a term that the API server knows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import msgspec
import structlog

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.config.server_tree import ServerConfig
from aliquot.control.leadership import rights
from aliquot.control.leadership.loop_heartbeat import LoopHeartbeat
from aliquot.control.leadership.term import NEVER, Term
from aliquot.errors import BadRecord, NotLeading
from aliquot.kube import CONFIG_MAPS, Client, ConfigMap, Informer, KubeError, LeaderElector, LeaseTiming
from aliquot.kube.errors import Forbidden
from aliquot.kube.leases import identity as unique_identity
from aliquot.kube.rights import Right
from aliquot.model.admission import EPOCH_MAP, FENCING
from aliquot.racing import first_of
from aliquot.side_loop import OtherLoop
from aliquot.signals import Signal

_log = structlog.get_logger()

_Answer = TypeVar("_Answer")

_ENDPOINTS = "aliquot.io/endpoints"
_PAUSE_SECONDS = 0.1
_STUCK_SECONDS = 10.0
_UNFIT_SECONDS = 60.0
"""How long a server that may not lead, or could not take over, leaves the Lease to others."""
_TAKEOVER_SECONDS = 120.0
"""How long a server may hold the Lease before it leads; listing a large cluster takes a fraction of that."""
_RIGHTS_SECONDS = 30.0
"""How often a server that lacks rights checks for them."""
_STUCK = (
    "the API server still compares with an older epoch, which happens if the policies are deleted and created again "
    "while it runs; restart kube-apiserver, or lead without fencing: "
    f"kubectl delete validatingadmissionpolicybinding {FENCING}"
)
_FENCED_OUT = (
    "the API server accepts a placement only with the epoch of a term, and this server has none: give it the rights "
    f"for Lease and epoch, or delete the ValidatingAdmissionPolicyBinding {FENCING}"
)
_NOT_FENCED = (
    "no admission policy checks the epoch (install deploy/policies.yaml; Kubernetes 1.30 or later): "
    "if a paused leader writes late, only the agents notice"
)


@dataclass(frozen=True)
class Side:
    """An event loop other than the deciding loop, and a client that works there."""

    loop: OtherLoop
    client: Client


class Role(Enum):
    LEADING = "leading"
    FOLLOWING = "following"
    ALONE = "alone"
    OBSERVING = "observing"


class Leadership:
    """`refresh` brings the informer caches up to date with the API server; a new leader waits for it before it commits.
    With a `side`, the Lease is renewed there while the `pulse` shows that this loop is alive."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: ServerConfig,
        refresh: Callable[[], Awaitable[None]],
        side: Side | None = None,
        pulse: LoopHeartbeat | None = None,
        identity: str = "",
    ) -> None:
        self._client = client
        self._side = side
        self._clock = clock
        self._settings = settings
        self._terms = LeaseTiming(settings.lease.duration, settings.lease.renew, settings.lease.retry)
        self._refresh = refresh
        self._identity = identity or unique_identity()
        self._elector = LeaderElector(
            side.client if side else client,
            settings.lease.name,
            settings.lease.namespace,
            self._identity,
            terms=self._terms,
            clock=clock,
            is_alive=lambda: pulse is None or pulse.silence() < self._terms.renew,
        )
        self._own_endpoints: frozenset[str] = frozenset()
        self.advertise({})
        self._term = Term(client, settings.lease)
        selector = {"fieldSelector": f"metadata.name={EPOCH_MAP}"}
        self._epochs: Informer[ConfigMap] = Informer(
            client, CONFIG_MAPS, self._on_epoch, namespace=settings.lease.namespace, selector=selector, clock=clock
        )
        self._epoch = NEVER
        self._deposed = asyncio.Event()
        self._is_alone = not settings.lease.enabled
        self._trouble = self._stuck = self._fenced_out = self._unfit = ""
        self.changed: Signal[None] = Signal()
        """Emitted whenever a term begins or ends."""
        self.lacking: list[Right] = []
        self.missing: list[str] = []
        """What this server may not do, and the consequences, for people."""

    @property
    def role(self) -> Role:
        if self._settings.mode == "observe":
            return Role.OBSERVING
        if self._is_alone:
            return Role.ALONE
        return Role.LEADING if self._epoch != NEVER and self._elector.holds() else Role.FOLLOWING

    @property
    def may_commit(self) -> bool:
        return self.role in (Role.LEADING, Role.ALONE)

    @property
    def epoch(self) -> int:
        """The epoch in our commits; 0 without a term."""
        return self._epoch if self.role is Role.LEADING else NEVER

    @property
    def holder(self) -> str:
        """The Lease holder as we see it; empty without a holder."""
        return self._elector.holder

    @property
    def endpoints(self) -> Mapping[str, str]:
        """URLs of the holder's endpoints, by name."""
        text = self._elector.holders_annotations.get(_ENDPOINTS, "{}")
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError:
            return {}

    def advertise(self, endpoints: Mapping[str, str]) -> None:
        """Set the URLs of our own endpoints, written on the Lease while we hold it. Call it before `run`."""
        self._own_endpoints = frozenset(endpoints.values())
        self._elector.annotations = {_ENDPOINTS: msgspec.json.encode(endpoints, order="sorted").decode()}

    def require(self) -> int:
        """The epoch for a commit made now; 0 without terms. Raises NotLeading."""
        match self.role:
            case Role.LEADING:
                return self._epoch
            case Role.ALONE:
                return NEVER
            case Role.OBSERVING:
                raise NotLeading("this server is in observe mode: it reads, and writes nothing")
        raise NotLeading(self.no_holder() or f"this server is not the leader; {self.holder} is")

    def no_holder(self) -> str:
        """Why no server can commit; empty if a server can."""
        if self.role in (Role.ALONE, Role.OBSERVING):
            return self._fenced_out
        lease = f"{self._settings.lease.namespace}/{self._settings.lease.name}"
        if not self.holder:
            why = self._unfit or self._trouble or self._elector.trouble
            return f"no server holds the Lease {lease}" + (f": {why}" if why else "")
        if self._elector.holds() and self._epoch == NEVER:
            why = self._stuck or self._trouble
            return "this server is taking over" + (f": {why}" if why else "")
        if self._has_our_address(self.holder):
            return (
                f"{self.holder} holds the Lease {lease} with this server's own address: it was this server before a "
                f"restart, and its Lease expires within {self._terms.duration:g} s; if that other server is "
                "alive, give each server its own replicas.address"
            )
        return ""

    def _has_our_address(self, holder: str) -> bool:
        """Whether calls forwarded to this holder would come back to us."""
        return holder != self._identity and not self._own_endpoints.isdisjoint(self.endpoints.values())

    def notes(self) -> list[str]:
        """The leader and degraded features, for people."""
        now = {
            Role.LEADING: f"This server leads in term {self._epoch}.",
            Role.FOLLOWING: f"This server follows {self.holder}.",
            Role.ALONE: f"This server runs alone, without Lease and epoch; {rights.ONLY_ONE}.",
            Role.OBSERVING: "This server is in observe mode: it writes nothing.",
        }
        return [now[self.role], *([self._unfit] if self._unfit else []), *self.missing]

    def depose(self) -> None:
        """Stop leading at once and stand for election again, because the API server knows a later term. A server that
        is alone has no term, and can only report it."""
        if self._is_alone:
            self._fenced_out = _FENCED_OUT
            _log.error("cannot commit any placement", why=_FENCED_OUT)
            return
        if self._epoch != NEVER:
            _log.error("another server is the leader now", epoch=self._epoch)
        self._end_term()
        self._deposed.set()

    # -- lifecycle

    async def run(self) -> None:
        """Stand for the Lease, and lead while we hold it. Returns at once if there is no election."""
        if self.role in (Role.ALONE, Role.OBSERVING):
            self.changed.emit(None)
            return
        while await self._has_too_few_rights():
            self._is_alone = True
            self.changed.emit(None)
            await self._clock.sleep(_RIGHTS_SECONDS)
        self._is_alone = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stand())
            if rights.see_epochs(self._settings.lease) not in self.lacking:
                tasks.create_task(self._epochs.run())

    async def _stand(self) -> None:
        """Stand for the Lease. The side loop renews it, so that a short stall of this loop does not lose it. A stuck
        loop does lose it."""
        if self._side is None:
            await self._elector.run(self._lead)
        else:
            here = OtherLoop(asyncio.get_running_loop())
            await self._side.loop.run(self._elector.run(lambda: here.run(self._lead())))

    async def _has_too_few_rights(self) -> bool:
        needed, useful = rights.for_replicas(self._settings.lease), rights.for_helping(self._settings.lease)
        known = self.lacking
        self.lacking = [right for right in (*needed, *useful) if not await self._has(right)]
        self.missing = [f"{right}; the rule to add: {right.rule()}" for right in self.lacking]
        for right in self.lacking:
            if right not in known:
                _log.warning("a right is missing", why=str(right), rule_to_add=right.rule())
        return any(right in needed for right in self.lacking)

    async def _has(self, right: Right) -> bool:
        try:
            return await self._insist(lambda: right.is_given(self._client), "check our rights")
        except Forbidden:
            return False  # an account that may not even ask has few rights

    async def _insist(self, what: Callable[[], Awaitable[_Answer]], name: str) -> _Answer:
        """Retry until there is an answer, and report the obstacle meanwhile."""
        while True:
            try:
                answer = await what()
            except Forbidden:
                raise
            except (KubeError, BadRecord) as error:
                self._trouble = f"cannot {name}: {error}"
                _log.warning("a request to the API server failed, retrying", request_to=name, error=str(error))
                await self._clock.sleep(self._terms.retry)
            else:
                self._trouble = ""
                return answer

    def _on_epoch(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        """End our term when another server's begins. Usually we notice it here, before the API server refuses a
        write."""
        if new is not None and self._epoch != NEVER and self._term.is_later(new, self._epoch):
            self.depose()

    async def _lead(self) -> None:
        """Lead for a single term. Returns when the API server says that it is over."""
        self._deposed.clear()
        try:
            if await first_of(self._take_over(), self._clock.sleep(_TAKEOVER_SECONDS)) == 0:
                await self._deposed.wait()
            else:
                self._give_up()
        except Forbidden as error:
            self._unfit = f"this server may not become leader and leaves it to others: {error}"
            _log.error("not allowed to become leader", error=str(error), retry_after=_UNFIT_SECONDS)
            self._elector.abstain(_UNFIT_SECONDS)
        finally:
            self._end_term()

    def _give_up(self) -> None:
        """Give up the Lease: another server may be able to lead."""
        why = self._stuck or self._trouble or "the list of nodes and pods did not finish"
        self._unfit = f"this server could not take over within {_TAKEOVER_SECONDS:g} s: {why}"
        _log.error("releasing the Lease", why=self._unfit, retry_after=_UNFIT_SECONDS)
        self._elector.abstain(_UNFIT_SECONDS)

    async def _take_over(self) -> None:
        epoch = await self._insist(self._term.raise_epoch, "raise the epoch")
        while not await self._is_in_force(epoch):
            epoch = await self._insist(self._term.raise_epoch, "raise the epoch")
        self._note_fencing(await self._insist(self._term.is_fenced, "learn whether a policy checks the epoch"))
        await self._refresh()
        self._epoch, self._unfit = epoch, ""
        metrics.TERMS.labels("began").inc()
        self.changed.emit(None)
        _log.info("became the leader", epoch=epoch, identity=self._identity)

    async def _is_in_force(self, epoch: int) -> bool:
        """Wait until the API server enforces the epoch. That takes a second, unless its own ConfigMap cache has stopped
        for good. Returns False if another server has raised the epoch further."""
        due = self._clock.monotonic() + _STUCK_SECONDS
        while await self._insist(lambda: self._term.is_refused(epoch), "learn whether the epoch is in force"):
            if self._clock.monotonic() >= due:
                if await self._insist(self._term.current, "read the epoch") != epoch:
                    return False
                if not self._stuck:
                    _log.error("cannot become the leader, retrying", epoch=epoch, why=_STUCK)
                self._stuck = _STUCK
                due += _STUCK_SECONDS
            await self._clock.sleep(_PAUSE_SECONDS)
        self._stuck = ""
        return True

    def _note_fencing(self, fenced: bool) -> None:
        self.missing = [text for text in self.missing if text != _NOT_FENCED] + ([] if fenced else [_NOT_FENCED])
        if not fenced:
            _log.warning("the API server does not fence placements", why=_NOT_FENCED)

    def _end_term(self) -> None:
        if self._epoch != NEVER:
            metrics.TERMS.labels("ended").inc()
            _log.info("no longer the leader", epoch=self._epoch)
        self._epoch, self._stuck = NEVER, ""
        self.changed.emit(None)

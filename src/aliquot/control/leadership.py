"""Which of several servers may commit: the holder of the Lease, in a term that the API server knows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

import msgspec
import structlog

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.control import rights
from aliquot.control.settings import ControlSettings, Mode
from aliquot.control.term import NEVER, Term
from aliquot.errors import BadRecord, NotLeading
from aliquot.kube import Client, Elector, KubeError
from aliquot.kube.leases import identity

_log = structlog.get_logger()

_DOORS = "aliquot.io/doors"
_RETRY_SECONDS = 2.0
_NOT_FENCED = (
    "no admission policy checks the epoch (install deploy/policies.yaml; Kubernetes 1.30 or later): "
    "only the agents notice what a paused leader writes late"
)


class Role(Enum):
    LEADING = "leading"
    FOLLOWING = "following"
    ALONE = "alone"
    OBSERVING = "observing"


class Leadership:
    """`refresh` makes the mirror as new as the API server; a new leader waits for that before it commits."""

    def __init__(
        self, client: Client, clock: Clock, settings: ControlSettings, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._refresh = refresh
        self._identity = settings.identity or identity()
        self._elector = Elector(
            client, settings.lease, settings.namespace, self._identity, terms=settings.terms, clock=clock
        )
        self._term = Term(client, clock, settings)
        self._epoch = NEVER
        self._deposed = asyncio.Event()
        self._is_alone = settings.alone
        self._trouble = ""
        self.changed = asyncio.Event()
        """Set whenever a term begins or ends; whoever waits for it clears it."""
        self.missing: list[str] = []
        """What this server may not do and what is lost by it, for people."""

    @property
    def role(self) -> Role:
        if self._settings.mode is Mode.OBSERVE:
            return Role.OBSERVING
        if self._is_alone:
            return Role.ALONE
        return Role.LEADING if self._epoch != NEVER and self._elector.holds() else Role.FOLLOWING

    @property
    def may_commit(self) -> bool:
        return self.role in (Role.LEADING, Role.ALONE)

    @property
    def epoch(self) -> int:
        """What we write into our commits; 0 without a term."""
        return self._epoch if self.role is Role.LEADING else NEVER

    @property
    def holder(self) -> str:
        """Who holds the Lease, as far as we can see; empty if nobody does."""
        return self._elector.holder

    @property
    def doors(self) -> Mapping[str, str]:
        """Where the holder's doors can be reached: URLs by name."""
        text = self._elector.holders_annotations.get(_DOORS, "{}")
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError:
            return {}

    def tell_doors(self, doors: Mapping[str, str]) -> None:
        """Where our own doors can be reached; written on the Lease while we hold it. Call it before `run`."""
        self._elector.annotations = {_DOORS: msgspec.json.encode(doors, order="sorted").decode()}

    def require(self) -> int:
        """The epoch for a commit of this moment; 0 without terms. Raises NotLeading."""
        match self.role:
            case Role.LEADING:
                return self._epoch
            case Role.ALONE:
                return NEVER
            case Role.OBSERVING:
                raise NotLeading("this server only observes")
        raise NotLeading(self.no_holder() or f"this server does not lead, {self.holder} does")

    def no_holder(self) -> str:
        """Why there is nobody to commit; empty if there is somebody."""
        if self.role in (Role.ALONE, Role.OBSERVING):
            return ""
        lease = f"{self._settings.namespace}/{self._settings.lease}"
        if not self.holder:
            why = self._trouble or self._elector.trouble
            return f"no server holds the Lease {lease}" + (f": {why}" if why else "")
        if self._elector.holds() and self._epoch == NEVER:
            return "this server is taking over" + (f": {self._trouble}" if self._trouble else "")
        return ""

    def depose(self) -> None:
        """The API server knows a later term than ours: stop at once, and stand again as anybody else."""
        if self._epoch != NEVER:
            _log.error("another server leads by now, the API server refused our epoch", epoch=self._epoch)
        self._end_term()
        self._deposed.set()

    # -- a server's life

    async def run(self) -> None:
        """Stand for the Lease, and lead whenever we hold it. Returns at once where there is nothing to stand for."""
        if self.role in (Role.ALONE, Role.OBSERVING):
            self.changed.set()
            return
        if await self._has_too_few_rights():
            self._is_alone = True
            self.changed.set()
            return
        await self._elector.run(self._lead)

    async def _has_too_few_rights(self) -> bool:
        while True:
            try:
                needed = await rights.missing(self._client, rights.for_replicas(self._settings))
                useful = await rights.missing(self._client, rights.for_helping())
            except KubeError as error:
                self._trouble = f"cannot ask for our rights: {error}"
                _log.warning("cannot ask for our rights, trying again", error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            self._trouble = ""
            self.missing = [str(right) for right in (*needed, *useful)]
            for right in (*needed, *useful):
                _log.warning("a right is missing", why=str(right), rule_to_add=right.rule())
            return bool(needed)

    async def _lead(self) -> None:
        """One term. Returns when the API server says that it is over."""
        self._deposed.clear()
        try:
            await self._take_over()
            await self._deposed.wait()
        finally:
            self._end_term()

    async def _take_over(self) -> None:
        while True:
            try:
                epoch = await self._term.begin()
                fenced = await self._term.is_fenced()
                await self._refresh()
            except (KubeError, BadRecord) as error:
                self._trouble = str(error)
                _log.warning("cannot begin a term, trying again", error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                continue
            break
        self._trouble = ""
        self._note_fencing(fenced)
        self._epoch = epoch
        metrics.TERMS.labels("began").inc()
        self.changed.set()
        _log.info("leads", epoch=epoch, identity=self._identity, fenced=fenced)

    def _note_fencing(self, fenced: bool) -> None:
        self.missing = [text for text in self.missing if text != _NOT_FENCED] + ([] if fenced else [_NOT_FENCED])
        if not fenced:
            _log.warning("not fenced", why=_NOT_FENCED)

    def _end_term(self) -> None:
        if self._epoch != NEVER:
            metrics.TERMS.labels("ended").inc()
            _log.info("leads no more", epoch=self._epoch)
        self._epoch = NEVER
        self.changed.set()

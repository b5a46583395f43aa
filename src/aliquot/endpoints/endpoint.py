"""An endpoint: one system's routes on one port. It times each decision and forwards it to the leader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from aliquot import faults, metrics
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import access_log, asgi
from aliquot.endpoints.call_log import log_call, log_fault, with_bodies
from aliquot.endpoints.extender import (
    BadCall,
    FilterCall,
    filter_answer,
    filter_fault,
    preempt_answer,
    read_bind,
    read_filter,
    read_preempt,
)
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.metrics import timed
from aliquot.endpoints.names import Names
from aliquot.endpoints.points import BEST
from aliquot.endpoints.verbs import NOT_CHOSEN, FilterResult, Verbs
from aliquot.engine import Ints
from aliquot.errors import AliquotError
from aliquot.kube import KubeError
from aliquot.model import Pod

Table = Mapping[tuple[str, str], asgi.Handler]

_UNRESOLVABLE = "FailedAndUnresolvableNodes"


@dataclass(frozen=True)
class Wire:
    """The differences between the systems' extenders."""

    binds: bool = True
    """The scheduler calls our bind. Otherwise a filter that leaves one node makes a reservation for the pod."""
    one_node: bool = False
    """The filter returns only the best node."""
    both_forms: bool = False
    """An answer with whole nodes also lists their names."""
    null_items: bool = False
    """An empty list of whole nodes is null."""
    blank_maps: bool = False
    """A pod without GPUs gets null, not empty maps."""
    knows_unresolvable: bool = True
    """The original's answers always have the key FailedAndUnresolvableNodes. If False, they have it only if it names a
    node: the original's Kubernetes library predates that key."""
    untyped: bool = False
    """The original streams its JSON: a newline ends it, and without a content type Go declares plain text."""
    names_refused: bool = True
    """The original names the nodes that it refuses; with `compat.maps`, so do we."""
    every_score: bool = True
    """prioritize names every node. Otherwise it omits nodes without points, which are most of a uniform cluster: a
    thousand scores cost the scheduler more than they cost us."""
    compat: Compat = OURS
    not_chosen: str = ""
    """The original's text for a node that fits but was not chosen, with the pod's {uid}; for `compat.reasons`."""


class Extender:
    """Handlers for kube-scheduler's verbs. With a forwarder, a follower forwards them to the leader, which knows this
    endpoint by the name `endpoint`."""

    def __init__(
        self,
        plane: ControlPlane,
        endpoint: str,
        forwarder: Forwarder | None,
        wire: Wire,
        guard: asgi.Guard | None = None,
    ) -> None:
        self.verbs = Verbs(plane)
        self._plane = plane
        self._endpoint = endpoint
        self._forwarder = forwarder
        self._wire = wire
        self._guard = guard

    def routes(self, prefix: str, **paths: str) -> Table:
        """POST routes for verbs by the last segments of their paths: `filter="predicates"`."""
        known: dict[str, tuple[asgi.Handler, Callable[[str], asgi.Response]]] = {
            "filter": (self.filter, self._filter_fault),
            "prioritize": (self.prioritize, unavailable),
            "bind": (self.bind, self._bind_answer),
            "preempt": (self.preempt, unavailable),
        }
        return {("POST", f"{prefix}/{path}"): self.decision(verb, *known[verb]) for verb, path in paths.items()}

    def decision(self, verb: str, handler: asgi.Handler, fault: Callable[[str], asgi.Response]) -> asgi.Handler:
        """Turn a handler into a route that is timed and answered by the leader; `fault` words an error for the
        endpoint."""
        handler = timed(verb, handler, self._plane.clock)
        if self._forwarder is not None:
            handler = self._forwarder.to_leader(self._endpoint, verb, handler, fault)
        return asgi.DecisionHandler(with_bodies(verb, handler), fault, self._guard)

    # -- filter

    async def filter(self, call: asgi.Call) -> asgi.Response:
        try:
            asked = read_filter(call.body, self.verbs.last_passed)
            if why := self.verbs.not_ready():
                return self._fault(why)
            result = await self._result(call, asked)
        except AliquotError as error:
            return self._fault(str(error))
        dialect = result.dialect.name if result.dialect else ""
        metrics.DECISIONS.labels("filter", dialect, result.outcome).inc()
        log_call("filter", asked.pod.key, asked.names, result.passed, result.refused)
        answer = self._filter_answer(asked, result)
        return self._json(answer, after=lambda: faults.reach("after-filter"), dialect=dialect)

    async def _result(self, call: asgi.Call, asked: FilterCall) -> FilterResult:
        """The result, with an audit line for each reservation that the filter makes, refuses or releases. Raises as
        `Verbs.filter`."""
        pod, names, best_only = asked.pod, asked.names, self._wire.one_node
        if self._wire.binds:
            return await self.verbs.filter(pod, names, best_only=best_only)
        nodes_of, uid = self._plane.reservations.nodes_of, pod.metadata.uid
        before = nodes_of(uid)
        try:
            result = await self.verbs.filter(pod, names, best_only=best_only, reserve=True)
        except AliquotError as error:
            access_log.log(call, "filter", pod.key, "", "refused", str(error))
            raise
        finally:
            for node in sorted({*before}.difference(nodes_of(uid))):
                access_log.log(call, "filter", pod.key, node, "released")
        if result.reserved:
            access_log.log(call, "filter", pod.key, result.reserved, "reserved")
        return result

    def _filter_answer(self, asked: FilterCall, result: FilterResult) -> dict[str, object]:
        refused = self._in_original_words(asked.pod, result) if self._wire.compat.reasons else result.refused
        answer = filter_answer(asked, result.passed, refused)
        if result.dialect is None and not refused and self._wire.blank_maps:
            answer["FailedNodes"] = None
        if self._wire.compat.maps:
            answer[_UNRESOLVABLE] = None
            if not self._wire.names_refused:
                answer["FailedNodes"] = None
        elif result.emptying:
            others = {node: why for node, why in refused.items() if node != result.emptying}
            answer[_UNRESOLVABLE] = others or None
        if asked.nodes and not result.passed and self._wire.null_items:
            answer["Nodes"] = {"metadata": {}, "items": None}
        if asked.nodes is not None and not self._wire.both_forms:
            answer["NodeNames"] = None
        return self._with_known_keys(answer)

    def _with_known_keys(self, answer: dict[str, object]) -> dict[str, object]:
        if not self._wire.knows_unresolvable and answer[_UNRESOLVABLE] is None:
            del answer[_UNRESOLVABLE]
        return answer

    def _in_original_words(self, pod: Pod, result: FilterResult) -> Mapping[str, str]:
        uid, dialect = pod.metadata.uid, result.dialect
        if dialect is None:
            return result.refused
        exact = {node: dialect.exact_words(reason, node, uid) for node, reason in result.reasons.items()}
        not_chosen = self._wire.not_chosen.format(uid=uid) or NOT_CHOSEN
        ours = {node: not_chosen if why == NOT_CHOSEN else why for node, why in result.refused.items()}
        return ours | exact

    def _fault(self, why: str) -> asgi.Response:
        _count_fault("filter", why)
        return self._filter_fault(why)

    def _filter_fault(self, why: str) -> asgi.Response:
        return self._json(self._with_known_keys(filter_fault(why)))

    # -- prioritize

    async def prioritize(self, call: asgi.Call) -> asgi.Response:
        """Score nodes. Only the status code can report an error; kube-scheduler then continues without our scores."""
        try:
            asked = read_filter(call.body, self.verbs.last_passed)
        except BadCall as error:
            _count_fault("prioritize", str(error))
            return asgi.text(str(error), 400)
        if why := self.verbs.not_ready():
            _count_fault("prioritize", why)
            return unavailable(why)
        dialect, scores = self.verbs.scores(asked.pod, asked.names)
        metrics.DECISIONS.labels("prioritize", dialect, "scored").inc()
        log_call(
            "prioritize",
            asked.pod.key,
            asked.names,
            (f"{node}={score}" for node, score in zip(asked.names, scores, strict=True)),
            {},
        )
        return self._json(self._priorities(asked.names, scores), dialect=dialect)

    def _priorities(self, names: Names, scores: Ints) -> msgspec.Raw:
        if self._wire.every_score:
            return names.scored(scores)
        points = scores - scores.min(initial=BEST)
        return names.picked(points > 0).scored(points[points > 0])

    # -- bind

    async def bind(self, call: asgi.Call) -> asgi.Response:
        pod = node = ""
        try:
            asked = read_bind(call.body)
            pod, node = f"{asked.namespace}/{asked.name}", asked.node
            dialect = await self.verbs.bind(asked)
        except AliquotError as error:
            metrics.DECISIONS.labels("bind", "", "refused").inc()
            access_log.log(call, "bind", pod, node, "refused", str(error))
            return self._bind_answer(str(error))
        access_log.log(call, "bind", pod, node, "bound")
        metrics.DECISIONS.labels("bind", dialect, "bound").inc()
        return self._bind_answer("", dialect)

    def _bind_answer(self, why: str, dialect: str = "") -> asgi.Response:
        """Return a refusal as a 200 with its text in `Error`: kube-scheduler discards the body of any other status."""
        status = 500 if why and self._wire.compat.bind_faults else 200
        return asgi.json({"Error": why}, status, dialect=dialect)

    # -- preempt

    async def preempt(self, call: asgi.Call) -> asgi.Response:
        """Return no candidate if we cannot tell: nobody is evicted on a guess."""
        try:
            asked = read_preempt(call.body)
        except BadCall as error:
            _count_fault("preempt", str(error))
            return asgi.text(str(error), 400)
        if why := self.verbs.not_ready():
            _count_fault("preempt", why)
            return unavailable(why)
        try:
            dialect, left = await self.verbs.preempt(asked)
        except KubeError as error:
            _count_fault("preempt", str(error))
            return unavailable(str(error))
        metrics.DECISIONS.labels("preempt", dialect, "victims" if left else "no victims").inc()
        log_call("preempt", asked.pod.key, list(asked.victims), (f"{node}={v.uids}" for node, v in left.items()), {})
        return self._json(preempt_answer(left), dialect=dialect)

    def _json(self, value: object, after: Callable[[], None] | None = None, dialect: str = "") -> asgi.Response:
        answer = asgi.json(value, after=after, dialect=dialect)
        return replace(answer, body=answer.body + b"\n", content_type=asgi.PLAIN) if self._wire.untyped else answer


def _count_fault(verb: str, why: str) -> None:
    metrics.DECISIONS.labels(verb, "", "fault").inc()
    log_fault(verb, why)


def unavailable(why: str) -> asgi.Response:
    return asgi.text(why, 503)

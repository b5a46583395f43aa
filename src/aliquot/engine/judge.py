"""Which nodes can take a request, which cards it would get there, which node is best, and why the others cannot."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import TypeVar

import numpy as np

from aliquot.engine.all_nodes.choosing import CardChoice, combined, policy
from aliquot.engine.all_nodes.plan import plan
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.refusing import FITS, NUMBERED, Numbers, Refusing
from aliquot.engine.all_nodes.room import Room, wanted
from aliquot.engine.arrays import Bools, Floats, Ints
from aliquot.engine.fleet import Fleet
from aliquot.engine.lookup import NameBlock
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.quotas.quota import Decision
from aliquot.engine.topology import in_reach
from aliquot.engine.view import NodePolicy, Outcome, Settings
from aliquot.errors import BadDemand, BadInput
from aliquot.model import Placement, Reason, Request, cut

_Array = TypeVar("_Array", Bools, Numbers, Floats)


class Judgement:
    """A request judged on the whole Fleet as it is now; ask it before the Fleet changes.

    `elsewhere` is the same where another agent hands out the cards, if the request differs there.
    """

    def __init__(
        self, request: Request, ours: Refusing, elsewhere: Refusing | None, node_policies: Iterable[NodePolicy]
    ) -> None:
        self.fleet = ours.question.fleet
        self.request = request
        self.settings = ours.question.settings
        self._ours = ours
        self._elsewhere = elsewhere
        self._node_policies = tuple(node_policies)
        self.fits: Bools = ours.plan.fits if elsewhere is None else self._each(ours.plan.fits, elsewhere.plan.fits)

    def _each(self, ours: _Array, elsewhere: _Array) -> _Array:
        """[width]: for each node what counts there."""
        return np.where(self.fleet.has_other_agent, elsewhere, ours)

    def _at(self, column: int) -> Refusing:
        return self._elsewhere if self._elsewhere and self.fleet.has_other_agent[column] else self._ours

    @cached_property
    def _reasons(self) -> Numbers:
        ours = self._ours.reasons
        if self._elsewhere is None:
            return ours
        return np.append(self._each(ours[:-1], self._elsewhere.reasons[:-1]), ours[-1])

    def reasons_at(self, columns: Ints, *, but: Iterable[str] = ()) -> Numbers:
        """For each column a place in NUMBERED, or FITS; nothing is said against the nodes in `but`."""
        reasons, excepted = self._reasons, [self.fleet.column(node) for node in but]
        if excepted:
            reasons = reasons.copy()
            reasons[[column for column in excepted if column is not None]] = FITS
        return np.asarray(reasons[columns])

    def refusals(self, nodes: Iterable[str]) -> dict[str, Reason]:
        """Why each of these nodes that cannot take the request cannot; the others are left out."""
        names = list(nodes)
        numbers = self.reasons_at(self.fleet.table.find(NameBlock.of(names))).tolist()
        return {name: NUMBERED[number] for name, number in zip(names, numbers, strict=True) if number != FITS}

    def refusal(self, node: str) -> Reason | None:
        return self.refusals([node]).get(node)

    def placement(self, node: str) -> Placement | None:
        column = self.fleet.column(node)
        if column is None or not self.fits[column]:
            return None
        cards, side = self.fleet.state_at(column).cards, self._at(column)
        containers, chosen = side.question.request.containers, side.plan.rows_at(column)
        if self.request.together:
            shared = in_reach(self.fleet.wiring(column), chosen[0], self.request.wishes.topology)
            chosen = [tuple(sorted(shared[: container.part.cards])) for container in containers]
        return Placement(
            node=node,
            dialect=self.request.dialect,
            containers={
                container.name: tuple(cut(container.part, cards.gpus[row], cards.unit_mib) for row in rows)
                for container, rows in zip(containers, chosen, strict=True)
            },
        )

    def best(self, nodes: Iterable[str] | None = None) -> str | None:
        """The node with the highest score, of equal ones the smallest name; of all nodes if none are named."""
        fits = self.fits if nodes is None else self.fits & self._columns(nodes)
        (columns,) = fits.nonzero()
        if not len(columns):
            return None
        scores = self._scores[columns]
        best = columns[scores == scores.max()]
        return self.fleet.names[int(best[self.fleet.name_order[best].argmin()] if len(best) > 1 else best[0])]

    def scores(self, nodes: Iterable[str]) -> dict[str, float]:
        """The policy's raw score of each of these nodes that fits: higher is better."""
        names = list(nodes)
        scores = self.scores_at(self.fleet.table.find(NameBlock.of(names)))
        fits = ~np.isnan(scores)
        return dict(zip(compress(names, fits.tolist()), scores[fits].tolist(), strict=True))

    def scores_at(self, columns: Ints) -> Floats:
        """The same for each column, not a number where the request does not fit."""
        scores = np.append(np.where(self.fits, self._scores, np.nan), np.nan)
        return np.asarray(scores[columns])

    @cached_property
    def outcome(self) -> Outcome:
        """Where our agent hands out the cards; everywhere, if the request does not differ elsewhere."""
        return _outcome(self._ours)

    @cached_property
    def _scores(self) -> Floats:
        scores = [each.score(self.outcome) for each in self._node_policies]
        if self._elsewhere is not None:
            theirs = _outcome(self._elsewhere)
            scores = [
                self._each(own, each.score(theirs)) for own, each in zip(scores, self._node_policies, strict=True)
            ]
        return combined(scores, self.fits.shape)

    def _columns(self, nodes: Iterable[str]) -> Bools:
        mask = np.zeros(self.fleet.width + 1, np.bool_)
        mask[self.fleet.table.find(NameBlock.of(nodes))] = True
        return mask[:-1]


def _outcome(side: Refusing) -> Outcome:
    question, plan = side.question, side.plan
    return Outcome(
        question.fleet,
        question.request,
        question.settings,
        plan.fits,
        plan.views,
        plan.lives,
        choose=lambda: plan.rows,
    )


def check_policies(gpu: str, node: str, *, gpu_field: str, node_field: str, error: type[BadInput] = BadDemand) -> None:
    """Raises `error` for a policy that there is not, naming the field in which it stands; "" names none. Loads what
    other packages bring, and raises BadConfig if that cannot be used."""
    GPU_POLICIES.load()
    NODE_POLICIES.load()
    if gpu:
        policy(GPU_POLICIES, gpu, gpu_field, error)
    if node:
        policy(NODE_POLICIES, node, node_field, error)


def judge(
    fleet: Fleet,
    request: Request,
    gpu_policy: str = "binpack",
    node_policy: str = "binpack",
    settings: Settings | None = None,
    *,
    decision: Decision | None = None,
) -> Judgement:
    """Judge a request on every card at once. Reads the Fleet, changes nothing.

    Policies may be several, `topology,binpack`; `decision` is what the namespace's quota leaves to the request. Raises
    BadDemand for a policy that there is not.
    """
    wrong_pools = decision.refused_nodes(fleet) if decision else None
    over_quota = decision.refused_cards(fleet) if decision else None
    unnamed = decision.unnamed_cards(fleet) if decision else None
    nodes = fleet.serves(request.dialect)
    question = Question(
        fleet=fleet,
        request=request.of_agent(other=False),
        room=Room.now(fleet),
        allowed=wanted(fleet, request, over_quota),
        nodes=nodes if wrong_pools is None else nodes & ~wrong_pools,
        choice=CardChoice(policy(GPU_POLICIES, gpu_policy, "GPU policy")),
        settings=settings or Settings(),
        topology=request.wishes.topology,
    )
    node_policies = policy(NODE_POLICIES, node_policy, "node policy")

    def judged(side: Question) -> Refusing:
        return Refusing(side, plan(side), wrong_pools, over_quota, unnamed)

    other = fleet.has_other_agent
    if not request.differs_elsewhere or not other.any():
        return Judgement(request, judged(question), None, node_policies)
    theirs = replace(
        question,
        request=request.of_agent(other=True),
        nodes=question.nodes & other,
        choice=CardChoice(policy(GPU_POLICIES, request.allocator or gpu_policy, "GPU policy")),
    )
    if not (fleet.has.any(axis=0) & ~other).any():
        return Judgement(request, judged(theirs), None, node_policies)
    ours = replace(question, nodes=question.nodes & ~other)
    return Judgement(request, judged(ours), judged(theirs), node_policies)

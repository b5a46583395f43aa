"""Which nodes can take a request, which cards it would get there, which node is best, and why the others cannot."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from aliquot.engine.choosing import CardChoice, policy, score
from aliquot.engine.fleet import Fleet
from aliquot.engine.plan import Plan, Question, plan
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.refusing import Refusing
from aliquot.engine.room import Room, wanted
from aliquot.engine.view import Bools, Floats, NodePolicy, Outcome, Settings
from aliquot.model import Placement, Reason, Request, Wishes, cut


class Judgement:
    """A request judged on the whole Fleet as it is now; ask it before the Fleet changes."""

    def __init__(self, question: Question, node_policies: Iterable[NodePolicy], refusing: Refusing) -> None:
        self.fleet = question.fleet
        self.request = question.request
        self.settings = question.settings
        self.fits: Bools = refusing.plan.fits
        self._plan: Plan = refusing.plan
        self._node_policies = tuple(node_policies)
        self._refusing = refusing

    def refusals(self, nodes: Iterable[str]) -> dict[str, Reason]:
        """Why each of these nodes that cannot take the request cannot; the others are left out."""
        reasons, column_of = self._refusing.reasons, self.fleet.column
        refused: dict[str, Reason] = {}
        for node in nodes:
            column = column_of(node)
            reason = Reason.UNKNOWN_NODE if column is None else reasons[column]
            if reason is not None:
                refused[node] = reason
        return refused

    def refusal(self, node: str) -> Reason | None:
        return self.refusals([node]).get(node)

    def placement(self, node: str) -> Placement | None:
        column = self.fleet.column(node)
        if column is None or not self.fits[column]:
            return None
        cards, containers = self.fleet.state_at(column).cards, self.request.containers
        chosen = self._plan.rows_at(column)
        if self.request.together:
            chosen = [chosen[0][: container.part.cards] for container in containers]
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
        fits, scores = self.fits.tolist(), self._scores.tolist()
        columns = ((node, self.fleet.column(node)) for node in nodes)
        return {node: scores[column] for node, column in columns if column is not None and fits[column]}

    @cached_property
    def outcome(self) -> Outcome:
        plan = self._plan
        return Outcome(
            self.fleet, self.request, self.settings, plan.fits, plan.views, plan.lives, choose=lambda: plan.rows
        )

    @cached_property
    def _scores(self) -> Floats:
        return score(self._node_policies, self.outcome)

    def _columns(self, nodes: Iterable[str]) -> Bools:
        mask = np.zeros(self.fleet.width, np.bool_)
        mask[[column for node in nodes if (column := self.fleet.column(node)) is not None]] = True
        return mask


GPU_POLICY = "aliquot.io/gpu-policy"
NODE_POLICY = "aliquot.io/node-policy"


def check_policies(wishes: Wishes) -> None:
    """Raises BadDemand for a policy that there is not."""
    if wishes.gpu_policy:
        policy(GPU_POLICIES, wishes.gpu_policy, GPU_POLICY)
    if wishes.node_policy:
        policy(NODE_POLICIES, wishes.node_policy, NODE_POLICY)


def judge(
    fleet: Fleet,
    request: Request,
    gpu_policy: str = "binpack",
    node_policy: str = "binpack",
    settings: Settings | None = None,
    *,
    vetoes: Mapping[str, Reason] | None = None,
    banned_models: Mapping[str, Reason] | None = None,
) -> Judgement:
    """Judge a request on every card at once. Reads the Fleet, changes nothing.

    Policies may be several, `topology,binpack`. `vetoes` are nodes and `banned_models` models of cards that are out
    of question whatever their room, with the reason. Raises BadDemand for a policy that there is not.
    """
    columns = {column: reason for node, reason in (vetoes or {}).items() if (column := fleet.column(node)) is not None}
    nodes = fleet.serves(request.dialect)
    if columns:
        nodes = nodes.copy()
        nodes[list(columns)] = False
    banned_models = banned_models or {}
    question = Question(
        fleet=fleet,
        request=request,
        room=Room.now(fleet),
        allowed=wanted(fleet, request, banned_models),
        nodes=nodes,
        choice=CardChoice(policy(GPU_POLICIES, gpu_policy, GPU_POLICY)),
        settings=settings or Settings(),
        topology=request.wishes.topology,
    )
    refusing = Refusing(question, plan(question), columns, banned_models)
    return Judgement(question, policy(NODE_POLICIES, node_policy, NODE_POLICY), refusing)

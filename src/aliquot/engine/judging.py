"""Which nodes can take a request, which cards it would get, which node is best, and why the others cannot take it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress

import numpy as np

from aliquot.engine.all_nodes.plan import plan
from aliquot.engine.all_nodes.policy_chain import CardChoice, policy, score
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.refusals import FITS, NUMBERED, Numbers, Refusals
from aliquot.engine.all_nodes.room import Room, unpromised, wanted
from aliquot.engine.arrays import Bools, Floats, Ints, joined
from aliquot.engine.block import Block
from aliquot.engine.effort import Effort
from aliquot.engine.fleet import Fleet
from aliquot.engine.lookup import NameBlock
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.quotas.quota import QuotaCheck
from aliquot.engine.topology import in_reach
from aliquot.engine.view import NodePolicy, PolicyOutcome, PolicySettings
from aliquot.errors import BadDemand, BadInput
from aliquot.model import Placement, Reason, Request, cut

_DEFAULTS = PolicySettings()


@dataclass(frozen=True)
class Standings:
    """How nodes compare."""

    scores: Floats
    """The policy's raw scores: higher is better. NaN if the request does not fit."""
    best: Bools
    """True for one node that fits, or for all with its score if the policy leaves ties to the scheduler."""


class Judgement:
    """A request judged on the whole Fleet as it is now. Use it before the Fleet changes."""

    def __init__(
        self, fleet: Fleet, request: Request, judged: Sequence[Refusals], node_policies: Sequence[NodePolicy]
    ) -> None:
        """`judged` has an entry for each of the Fleet's blocks, in their order."""
        self.fleet = fleet
        self.request = request
        self.settings = judged[0].question.settings
        self.effort = judged[0].question.effort
        self.fits: Bools = joined([each.plan.fits for each in judged])
        self._judged = judged
        self._node_policies = node_policies

    @property
    def searched(self) -> list[str]:
        """The nodes that were searched. Nothing is known of other nodes on which the greedy choice failed and that
        might have room."""
        return [each.question.fleet.names[column] for each in self._judged for column in each.plan.searched]

    def fits_among(self, columns: Ints | None) -> bool:
        """Whether the request fits on any of these columns."""
        return bool((self.fits if columns is None else self.fits & _mask(columns, self.fleet.width)).any())

    def reasons_at(self, columns: Ints, *, but: Iterable[str] = ()) -> Numbers:
        """For each column an index into NUMBERED, or FITS. The nodes in `but` always count as FITS."""
        reasons, excepted = self._reasons, [self.fleet.column(node) for node in but]
        if excepted:
            reasons = reasons.copy()
            reasons[[column for column in excepted if column is not None]] = FITS
        return np.asarray(reasons[columns])

    def refusals(self, nodes: Iterable[str]) -> dict[str, Reason]:
        """Why each of these nodes cannot take the request. Nodes that can take it are left out."""
        names = list(nodes)
        numbers = self.reasons_at(self.fleet.table.find(NameBlock.of(names))).tolist()
        return {name: NUMBERED[number] for name, number in zip(names, numbers, strict=True) if number != FITS}

    def refusal(self, node: str) -> Reason | None:
        return self.refusals([node]).get(node)

    def placement(self, node: str) -> Placement | None:
        block = self.fleet.block_of(node)
        column = None if block is None else block.column(node)
        if block is None or column is None:
            return None
        judged = self._judged[self.fleet.blocks.index(block)]
        if not judged.plan.fits[column]:
            return None
        cards, containers = block.state_at(column).cards, judged.question.request.containers
        chosen = judged.plan.rows_at(column)
        if self.request.together:
            shared = in_reach(block.wiring(column), chosen[0], self.request.constraints.topology)
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
        """The node with the highest score, among all nodes if `nodes` is None. Ties go to the smallest name."""
        column = self._best_column(self.fits if nodes is None else self.fits & self._columns(nodes))
        return None if column is None else self.fleet.name_at(column)

    def why(self) -> str:
        """Why the best of all nodes is better than the others that fit, in the numbers of its policy."""
        best = self._best_column(self.fits)
        if best is None:
            return ""
        said = [each.why(*self._outcome_at(best)) for each in self._node_policies]
        others = self.fits.copy()
        others[best] = False
        second = self._best_column(others)
        if second is None:
            said.append("no other node fits")
        else:
            rival, scores = self.fleet.name_at(second), self._scores[[best, second]].tolist()
            said.append(f"score {scores[0]:.6g}, next {rival} with {scores[1]:.6g}")
        return "; ".join(filter(None, said))

    def standings_at(self, columns: Ints) -> Standings:
        scores = self.scores_at(columns)
        best = scores == scores.max(initial=-np.inf, where=~np.isnan(scores))
        if best.any() and not all(policy.leaves_ties for policy in self._node_policies):
            best = columns == self._first_by_name(columns[best])
        return Standings(scores, best)

    def scores(self, nodes: Iterable[str]) -> dict[str, float]:
        """The policy's raw score of each of these nodes that fits: higher is better."""
        names = list(nodes)
        scores = self.scores_at(self.fleet.table.find(NameBlock.of(names)))
        fits = ~np.isnan(scores)
        return dict(zip(compress(names, fits.tolist()), scores[fits].tolist(), strict=True))

    def scores_at(self, columns: Ints) -> Floats:
        """The score of each column; NaN if the request does not fit."""
        scores = np.append(np.where(self.fits, self._scores, np.nan), np.nan)
        return np.asarray(scores[columns])

    @property
    def outcomes(self) -> Sequence[PolicyOutcome]:
        """The outcome of each block."""
        return [_outcome(each) for each in self._judged]

    @cached_property
    def _scores(self) -> Floats:
        return score(self._node_policies, self.outcomes)

    @cached_property
    def _reasons(self) -> Numbers:
        """[width + 1]; the last value is for nodes without a column."""
        *others, last = self._judged
        return joined([*(each.reasons[:-1] for each in others), last.reasons])

    def _best_column(self, fits: Bools) -> int | None:
        (columns,) = fits.nonzero()
        if not len(columns):
            return None
        scores = self._scores[columns]
        return self._first_by_name(columns[scores == scores.max()])

    def _outcome_at(self, column: int) -> tuple[PolicyOutcome, int]:
        """The outcome of a column's block, and the column within it."""
        for outcome in self.outcomes:
            if column < outcome.fleet.width:
                return outcome, column
            column -= outcome.fleet.width
        raise IndexError("there is no such column")

    def _first_by_name(self, columns: Ints) -> int:
        return int(columns[self.fleet.name_order[columns].argmin()] if len(columns) > 1 else columns[0])

    def _columns(self, nodes: Iterable[str]) -> Bools:
        return _mask(self.fleet.table.find(NameBlock.of(nodes)), self.fleet.width)


def check_policies(gpu: str, node: str, *, gpu_field: str, node_field: str, error: type[BadInput] = BadDemand) -> None:
    """Raises `error` for an unknown policy, and names the field in which it stands; "" names no policy. Loads the
    policies of other packages, and raises BadConfig if one of them cannot be used."""
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
    settings: PolicySettings | None = None,
    *,
    quota: QuotaCheck | None = None,
    effort: Effort | None = None,
    among: Ints | None = None,
) -> Judgement:
    """Judges a request on every card at once. Reads the Fleet and changes nothing.

    Policies may be chained, as in `topology,binpack`. `quota` is what the namespace's quota leaves to the request.
    `effort` is for all nodes together. `among` are the columns that matter: others are not searched. Raises BadDemand
    for an unknown policy.
    """
    choice, node_policies = _card_choice(gpu_policy), _node_policies(node_policy)
    theirs = _card_choice(request.allocator) if request.allocator else choice
    given, spending = settings or _DEFAULTS, effort or Effort()
    limits = quota if quota is not None and quota.quota is not None else None
    masks = _masks(fleet, among)
    judged = [
        _judged(
            block,
            request.of_agent(other=block.other_agent),
            theirs if block.other_agent else choice,
            given,
            limits,
            spending,
            mask,
        )
        for block, mask in zip(fleet.blocks, masks, strict=True)
    ]
    return Judgement(fleet, request, judged, node_policies)


@lru_cache
def uses_load(gpu_policy: str, node_policy: str) -> bool:
    """Whether a choice of these policies depends on how busy cards are."""
    chains = _card_choice(gpu_policy).policies, _node_policies(node_policy)
    return any(each.uses_load for chain in chains for each in chain)


@lru_cache
def _card_choice(names: str) -> CardChoice:
    return CardChoice(policy(GPU_POLICIES, names, "GPU policy"))


@lru_cache
def _node_policies(names: str) -> Sequence[NodePolicy]:
    return policy(NODE_POLICIES, names, "node policy")


def _judged(
    block: Block,
    request: Request,
    choice: CardChoice,
    settings: PolicySettings,
    quota: QuotaCheck | None,
    effort: Effort,
    among: Bools | None,
) -> Refusals:
    wrong_pools = quota.refused_nodes(block) if quota else None
    over_quota = quota.refused_cards(block) if quota else None
    unnamed = quota.unnamed_cards(block) if quota else None
    nodes, not_promised = block.serves(request.dialect), unpromised(block, request)
    if wrong_pools is not None:
        nodes = nodes & ~wrong_pools
    question = Question(
        fleet=block,
        request=request,
        room=Room.now(block),
        allowed=wanted(block, request, over_quota),
        nodes=nodes if not_promised is None else nodes & ~not_promised,
        choice=choice,
        settings=settings,
        topology=request.constraints.topology,
        effort=effort,
        among=among,
    )
    refusals = Refusals(question, plan(question), wrong_pools, over_quota, unnamed, not_promised)
    if effort.spent:
        refusals.reasons  # noqa: B018 (reasons may take effort, too: what this decision costs is known when it is made)
    return refusals


def _masks(fleet: Fleet, among: Ints | None) -> Sequence[Bools | None]:
    """For each block, the columns that matter."""
    if among is None:
        return [None] * len(fleet.blocks)
    mask = _mask(among, fleet.width)
    return [mask[(first := fleet.first(block)) : first + block.width] for block in fleet.blocks]


def _mask(columns: Ints, width: int) -> Bools:
    """Unknown nodes have the column after the last one."""
    mask = np.zeros(width + 1, np.bool_)
    mask[columns] = True
    return mask[:-1]


def _outcome(judged: Refusals) -> PolicyOutcome:
    asked, found = judged.question, judged.plan
    return PolicyOutcome(
        asked.fleet, asked.request, asked.settings, found.fits, found.views, found.lives, choose=lambda: found.rows
    )

"""What a namespace's quota leaves to a request: which models and which node pools, with the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from aliquot.engine.card_kinds import CardKind, CardType, card_type
from aliquot.engine.quotas.quota_map import Measure, NamespaceQuota, Quotas
from aliquot.engine.quotas.usage import Amount, Census, Usage, amount_of, amounts_of
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, NodeGpus, Reason, Request, is_model, peak

if TYPE_CHECKING:
    from aliquot.engine.arrays import Bools
    from aliquot.engine.block import Block


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One limit of a namespace, and what a request would add if it got this kind of card."""

    model: str
    measure: Measure
    used: Fraction
    needs: Fraction
    limit: int

    @property
    def missing(self) -> int:
        """How much the limit would have to grow for the request; 0 if it need not grow."""
        return max(0, ceil(self.used + self.needs - self.limit))

    def text(self) -> str:
        used, needs = _number(self.used), _number(self.needs)
        return f"{self.model}: {used} of {self.limit:,} {self.measure.value} used, the pod needs {needs}"

    def grant(self) -> str:
        """What is missing, as in `+1 card of M40`."""
        what = {Measure.CARDS: "card" if self.missing == 1 else "cards"}.get(self.measure, self.measure.value)
        return f"+{self.missing:,} {what} of {self.model}"


def _number(exact: Fraction) -> str:
    return f"{int(exact):,}" if exact.denominator == 1 else f"{float(exact):,.2f}"


@dataclass(frozen=True)
class QuotaCheck:
    """What a namespace's quota leaves to a request. Without a `quota`, everything is allowed."""

    request: Request
    quota: NamespaceQuota | None
    used: Mapping[CardKind, Amount]
    census: Census
    _known_lines: dict[CardType, tuple[QuotaLine, ...]] = field(default_factory=dict, repr=False)

    def lines(self, cards: NodeGpus, gpu: Gpu) -> tuple[QuotaLine, ...]:
        """Every limit that applies to a card. Empty if the quota does not name its model."""
        return self._lines(card_type(cards, gpu))

    def refuses(self, cards: NodeGpus, gpu: Gpu) -> Reason | None:
        return self.refuses_node(cards) or self.refuses_card(cards, gpu)

    def refuses_card(self, cards: NodeGpus, gpu: Gpu) -> Reason | None:
        return self._refuses(card_type(cards, gpu))

    def refuses_node(self, cards: NodeGpus) -> Reason | None:
        return self._refuses_pool(cards.pool)

    def why(self, cards: NodeGpus, gpu: Gpu) -> str:
        """Why a card is refused, with the numbers; "" if it is not."""
        if self.refuses_card(cards, gpu) is None:
            return ""
        lines = self.lines(cards, gpu)
        return "; ".join(line.text() for line in lines if line.missing) if lines else self._names_only()

    def exceeded(self, cards: NodeGpus, charges: Mapping[str, Charge]) -> str:
        """The limit that a placement would exceed, with the numbers; "" if none. An init container on a card of its own
        counts here; `refuses` assumes that it shares the cards of the others."""
        if self.quota is None:
            return ""
        added = list(amounts_of(cards, charges))
        for measure, limits in self.quota.limits.items():
            for name, limit in limits.items():
                needs = sum((_in(measure, amount, kind) for kind, amount in added if _names(name, kind)), Fraction())
                line = QuotaLine(name, measure, self._used(name, measure), needs, limit)
                if needs and line.missing:
                    return line.text()
        return ""

    def permits(self, state: NodeState) -> NodeState:
        """The node without the cards that the quota refuses."""
        if self.quota is None:
            return state
        return state.closed({gpu.uuid for gpu in state.cards.gpus if self.refuses(state.cards, gpu)})

    def refused_cards(self, fleet: "Block") -> "Bools | None":
        """[rows, width]: the cards that `refuses_card` refuses; None if there are none."""
        if self.quota is None:
            return None
        import numpy as np  # only decisions need it

        refused = [self._refuses(each) is not None for each in fleet.types]
        return np.array([*refused, False], np.bool_)[fleet.type_id] & fleet.has if any(refused) else None

    def unnamed_cards(self, fleet: "Block") -> "Bools | None":
        """[rows, width]: the cards whose model the quota does not name; None if there are none."""
        if self.quota is None:
            return None
        import numpy as np  # only decisions need it

        unnamed = [not self._lines(each) for each in fleet.types]
        return np.array([*unnamed, False], np.bool_)[fleet.type_id] & fleet.has if any(unnamed) else None

    def refused_nodes(self, fleet: "Block") -> "Bools | None":
        """[width]: the nodes that `refuses_node` refuses; None if there are none."""
        pools = [pool for pool in self.census.nodes if self._refuses_pool(pool)]
        if not pools:
            return None
        import numpy as np  # only decisions need it

        columns = (fleet.column(node) for pool in pools for node in self.census.nodes[pool])
        refused = np.zeros(fleet.width, np.bool_)
        refused[[column for column in columns if column is not None]] = True
        return refused

    def _refuses_pool(self, pool: str) -> Reason | None:
        if self.quota is None or not self.quota.pools or pool in self.quota.pools:
            return None
        return Reason.WRONG_POOL

    def _refuses(self, cards: CardType) -> Reason | None:
        if self.quota is None:
            return None
        lines = self._lines(cards)
        if not lines:
            return Reason.NOT_IN_QUOTA
        return Reason.OVER_QUOTA if any(line.missing for line in lines) else None

    def _lines(self, cards: CardType) -> tuple[QuotaLine, ...]:
        if cards not in self._known_lines:
            self._known_lines[cards] = tuple(self._lines_of(cards)) if self.quota else ()
        return self._known_lines[cards]

    def _lines_of(self, cards: CardType) -> list[QuotaLine]:
        assert self.quota is not None, "asked only where there is a quota"
        needs, kind = _needs(self.request, cards.gpu, cards.unit_mib), cards.kind
        return [
            QuotaLine(name, measure, self._used(name, measure), _in(measure, needs, kind), limit)
            for measure, limits in self.quota.limits.items()
            for name, limit in limits.items()
            if _names(name, kind)
        ]

    def _used(self, name: str, measure: Measure) -> Fraction:
        return _sum(self.used, name, measure)

    def _names_only(self) -> str:
        models = self.quota.models if self.quota else []
        return f"the quota is for {', '.join(models)} only" if models else "the quota names no model"


def check_quota(quotas: Quotas, usage: Usage, census: Census, request: Request) -> QuotaCheck:
    """What the quota leaves to a request. What its own pod already holds does not count."""
    quota = quotas.entries.get(request.namespace)
    used = usage.of(request.namespace, without=request.uid) if quota else {}
    return QuotaCheck(request, quota, used, census)


def quota_usage(quotas: Quotas, usage: Usage, namespace: str) -> list[QuotaLine]:
    """Every limit of a namespace with what is used of it."""
    quota = quotas.entries.get(namespace, NamespaceQuota())
    used = usage.of(namespace)
    return [
        QuotaLine(name, measure, _sum(used, name, measure), Fraction(), limit)
        for measure, limits in quota.limits.items()
        for name, limit in limits.items()
    ]


def _sum(used: Mapping[CardKind, Amount], name: str, measure: Measure) -> Fraction:
    return sum((_in(measure, amount, kind) for kind, amount in used.items() if _names(name, kind)), Fraction())


def _names(name: str, kind: CardKind) -> bool:
    return name == kind.label or is_model(name, kind.model)


def _needs(request: Request, gpu: Gpu, unit_mib: int) -> Amount:
    """What the pod takes if all of its cards are of this kind: its peak, assuming that init containers share the cards
    of the others."""
    parts = [(c.life, c.part.cards, amount_of(gpu, c.part.on(gpu, unit_mib))) for c in request.containers]
    return Amount(
        peak((life, cards * amount.card_parts) for life, cards, amount in parts),
        peak((life, cards * amount.core_parts) for life, cards, amount in parts),
        peak((life, cards * amount.mib) for life, cards, amount in parts),
    )


def _in(measure: Measure, amount: Amount, kind: CardKind) -> Fraction:
    match measure:
        case Measure.CARDS:
            return amount.cards(kind)
        case Measure.CORES:
            return amount.cores(kind)
        case Measure.MEMORY:
            return Fraction(amount.mib)

"""The tables of policies: those of this package, and those that other packages register as entry points."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from aliquot.engine.policies import (
    admission,
    bestfit,
    binpack,
    elastic_first,
    elastic_percent,
    elastic_trade,
    fgd,
    free_count,
    gpu_manager,
    keti,
    load,
    lookahead,
    random,
    spread,
    tightest,
    topology,
)
from aliquot.engine.view import GpuPolicy, NodePolicy
from aliquot.errors import BadConfig

Policy = TypeVar("Policy", bound=GpuPolicy | NodePolicy)


class PolicyTable(Mapping[str, Policy], Generic[Policy]):
    """Policies by name. Other packages are loaded when the table is first used, so that they can import this one.

    Raises BadConfig then, and names the entry point that cannot be used.
    """

    def __init__(self, kind: type[Policy], ours: Sequence[type[Policy]], group: str) -> None:
        self._kind = kind
        self._ours = ours
        self._group = group

    def __getitem__(self, name: str) -> Policy:
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def load(self) -> None:
        """Loads other packages now, so that an unusable policy is found at start and not during a decision."""
        assert self._policies, "our own policies are always there"

    @cached_property
    def _policies(self) -> dict[str, Policy]:
        policies = {policy.name: policy() for policy in self._ours}
        for entry in entry_points(group=self._group):
            where = f"entry point {entry.name} = {entry.value} of {self._group}"
            try:
                loaded = entry.load()
                policy = loaded() if isinstance(loaded, type) and issubclass(loaded, self._kind) else None
                name = policy.name if policy else ""
            except Exception as error:  # another package's code may raise anything, and the error must name the culprit
                raise BadConfig(f"{where} cannot be loaded: {error}") from error
            if policy is None:
                raise BadConfig(f"{where} is not a subclass of {self._kind.__name__}")
            if not name or "," in name:
                raise BadConfig(
                    f"{where}: {name!r} is not a valid policy name: it must not be empty or contain a comma"
                )
            if name in policies:
                raise BadConfig(f"{where}: policy {name} already exists; choose another name")
            policies[name] = policy
        return policies


GPU_POLICIES: PolicyTable[GpuPolicy] = PolicyTable(
    GpuPolicy,  # type: ignore[type-abstract]
    (
        binpack.BinpackCards,
        spread.SpreadCards,
        random.RandomCards,
        fgd.LeastFragmentingCards,
        lookahead.LookaheadCards,
        bestfit.BestFittingCards,
        topology.WellConnectedCards,
        load.CoolestCards,
        tightest.TightestCard,
        admission.AdmissionCards,
        gpu_manager.TreeCards,
        elastic_trade.TradeBinpackCards,
        elastic_trade.TradeSpreadCards,
        elastic_percent.PercentBinpackCards,
        elastic_percent.PercentSpreadCards,
        elastic_first.FirstBinpackCards,
        elastic_first.FirstSpreadCards,
        elastic_first.FirstRandomCards,
        keti.KetiCards,
    ),
    "aliquot.gpu_policies",
)

NODE_POLICIES: PolicyTable[NodePolicy] = PolicyTable(
    NodePolicy,  # type: ignore[type-abstract]
    (
        binpack.BinpackNodes,
        spread.SpreadNodes,
        random.RandomNodes,
        fgd.LeastFragmentingNodes,
        lookahead.LookaheadNodes,
        bestfit.BestFittingNodes,
        topology.WellConnectedNodes,
        load.CoolestNodes,
        admission.AdmissionNodes,
        elastic_trade.TradeBinpackNodes,
        elastic_trade.TradeSpreadNodes,
        elastic_percent.PercentBinpackNodes,
        elastic_percent.PercentSpreadNodes,
        elastic_first.FirstBinpackNodes,
        elastic_first.FirstSpreadNodes,
        elastic_first.FirstRandomNodes,
        tightest.TightestNodes,
        free_count.FreeCountNodes,
        keti.KetiNodes,
    ),
    "aliquot.node_policies",
)

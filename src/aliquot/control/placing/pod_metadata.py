"""What we write on a pod that we place: our record and term, and next to them what the dialect's original writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aliquot.control.leadership.term import NEVER
from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.model import Placement, Pod
from aliquot.model.records import EPOCH, PLACEMENT, write_placement


@dataclass(frozen=True)
class PodMetadata:
    """`version` is the only resourceVersion of the pod that may get the placement; "" for any."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""

    def fields(self) -> dict[str, Mapping[str, str]]:
        """As they stand in `metadata`."""
        return {"annotations": self.annotations} | ({"labels": self.labels} if self.labels else {})


def placement_metadata(
    pod: Pod, demand: Demand, placement: Placement, cluster: ClusterState, *, epoch: int, now_ns: int
) -> PodMetadata:
    """If users may rewrite what a pod asks for, only the version of the pod that we have read gets the placement."""
    dialect, cards = demand.dialect, cluster.cards(placement.node)
    request = demand.request.on(cards)
    term = {} if epoch == NEVER else {EPOCH: str(epoch)}
    own = dialect.annotations(pod, request, placement, cards, now_ns)
    labels = dialect.labels(pod, request, placement, cards)
    version = pod.metadata.resource_version if dialect.demand_can_change(pod) else ""
    # on an observed node another device plugin chooses: the agent records its choice
    record = {} if cards.observed else {PLACEMENT: write_placement(placement)}
    return PodMetadata({**record, **term, **own}, labels, version)

"""What we write on a pod that we place: our record and term, and beside it what the dialect's original writes."""

from collections.abc import Mapping

from aliquot.control.leadership.term import NEVER
from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.model import Placement, Pod
from aliquot.model.records import EPOCH, PLACEMENT, write_placement


def keys_of(
    pod: Pod, demand: Demand, placement: Placement, cluster: ClusterState, *, epoch: int, now_ns: int
) -> dict[str, Mapping[str, str]]:
    """The annotations and labels, as they stand in metadata."""
    dialect, cards = demand.dialect, cluster.cards(placement.node)
    request = demand.request.on(cards)
    own = dialect.annotations(pod, request, placement, cards, now_ns)
    labels = dialect.labels(pod, request, placement, cards)
    term = {} if epoch == NEVER else {EPOCH: str(epoch)}
    annotations = {PLACEMENT: write_placement(placement), **term, **own}
    return {"annotations": annotations} | ({"labels": labels} if labels else {})

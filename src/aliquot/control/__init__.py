"""The control plane: informer caches, the cluster state, and the only code that writes."""

from aliquot.control.leadership.leadership import Leadership, Role, Side
from aliquot.control.placing.commit import Committer
from aliquot.control.placing.transaction import Placed
from aliquot.control.plane import ControlPlane
from aliquot.control.state.cluster_state import ClusterState

__all__ = [
    "ControlPlane",
    "ClusterState",
    "Committer",
    "Placed",
    "Leadership",
    "Role",
    "Side",
]

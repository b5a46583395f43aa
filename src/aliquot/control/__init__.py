"""The control plane: a mirror of the cluster, the cluster state, and the one way to write."""

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

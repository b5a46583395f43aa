"""The control plane: informer caches, the cluster state, and the only code that writes.

Its names are imported when they are first used: `kubectl gpu` needs the cluster state, and no leadership or loops.
"""

from typing import TYPE_CHECKING

from aliquot.lazy_names import lazy

if TYPE_CHECKING:
    from aliquot.control.leadership.leadership import Leadership, Role, Side
    from aliquot.control.placing.commit import Committer
    from aliquot.control.placing.transaction import Placed
    from aliquot.control.plane import ControlPlane
    from aliquot.control.state.cluster_state import ClusterState
else:
    __getattr__ = lazy(
        __name__,
        {
            "leadership.leadership": "Leadership Role Side",
            "placing.commit": "Committer",
            "placing.transaction": "Placed",
            "plane": "ControlPlane",
            "state.cluster_state": "ClusterState",
        },
    )

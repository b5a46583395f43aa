"""What makes pods of Deployments, ReplicaSets and Jobs, as kube-controller-manager does in a real cluster, and lets old
Events go.

`loop` says what is due; each controller brings one kind of object nearer to what its spec wants.
"""

from aliquot.embedded.controllers.loop import Controllers

__all__ = ["Controllers"]

"""The controllers of workloads, namespaces and quotas, as in kube-controller-manager, and the expiry of Events.

`loop` is the work queue. Each controller reconciles one kind of object.
"""

from aliquot.embedded.controllers.loop import Controllers

__all__ = ["Controllers"]

"""The embedded cluster of `aliquot demo` and of the tests: an API server in memory (`api`) and hollow GPU nodes.

What it is not: a Kubernetes. Containers are pretence, and nothing outlives the process. It has no encryption, and no
admission but Aliquot's own policies, which it knows by name (`api.admission`). Deployments, ReplicaSets and Jobs become
pods (`controllers`); StatefulSets, DaemonSets, CronJobs and custom resources do not exist. Fields have managers from an
object's first server-side apply on, not before (`api.apply.managers`). Values are checked less than the real server
checks them. Services, volumes and quotas are stored and do nothing.
"""

from aliquot.embedded.api import StatusError
from aliquot.embedded.cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster", "StatusError"]

"""The embedded cluster of `aliquot demo` and of the tests: an API server in memory (`api`) and hollow GPU nodes.

What it is not: a Kubernetes. Containers are pretence, and nothing outlives the process. It has no encryption, and no
admission but Aliquot's own policies, which it knows by name (`api.admission`). Deployments, ReplicaSets and Jobs become
pods (`controllers`); StatefulSets, DaemonSets, CronJobs and custom resources do not exist. Server-side apply merges and
nobody owns fields, so two appliers never conflict and a field left out of an apply stays. Values are checked less than
the real server checks them. Services, volumes and quotas are stored and do nothing.
"""

from aliquot.embedded.api import EmbeddedCluster, StatusError

__all__ = ["EmbeddedCluster", "StatusError"]

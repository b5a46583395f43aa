"""The embedded cluster of `aliquot demo` and the tests: an API server in memory (`api`) and hollow GPU nodes (`nodes`).

It is not a Kubernetes: containers are simulated, and nothing outlives the process. It has no TLS, and its only
admission policies are Aliquot's own, which it knows by name (`api.admission`). Deployments, ReplicaSets, StatefulSets
and Jobs create pods (`controllers`). There are no DaemonSets, CronJobs and custom resources, and there is no
server-side apply. Validation is weaker than the real server's. Services and volumes do nothing.
"""

from aliquot.embedded.api import StatusError
from aliquot.embedded.cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster", "StatusError"]

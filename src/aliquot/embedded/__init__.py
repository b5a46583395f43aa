"""The embedded cluster of `aliquot demo` and of the tests: an API server in memory (`api`) and hollow GPU nodes.

What it is not: a Kubernetes. It has no controllers, admission policies or authentication; containers are pretence.
"""

from aliquot.embedded.api import EmbeddedCluster, StatusError

__all__ = ["EmbeddedCluster", "StatusError"]

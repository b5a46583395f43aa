"""A Kubernetes API server in memory, for `aliquot demo` and for tests: no root, no compiler, plain HTTP on loopback.

Follow a request: `server` (HTTP) -> `routes` (what the path names) -> `registry` (the API's rules, with `creation`,
`updates`, `deletion` and each resource's `strategy`) -> `store` (memory and event log) -> `answers`, `watching`.
"""

from aliquot.embedded.api.cluster import EmbeddedCluster
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import Resource
from aliquot.embedded.api.statuses import StatusError
from aliquot.embedded.api.store import Store

__all__ = ["EmbeddedCluster", "Registry", "Store", "Resource", "StatusError"]

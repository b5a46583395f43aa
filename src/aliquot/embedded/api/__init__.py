"""A Kubernetes API server in memory, for `aliquot demo` and for tests: no root, no compiler, plain HTTP on loopback.

Follow a request: `front` (the sender: `identity`) -> `server` (HTTP) -> `routes` (the path's resource) -> `rights`
(RBAC) -> `registry` (the API's rules, with `creation`, `updates`, `deletion`, each resource's `strategy`,
and `admission` for policies) -> `store` (memory and event log) -> `answers`, `watching`.
`schema` has the fields of all kinds. `faults` describes faults for tests, and `injection` makes them happen.
"""

from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import ServedResource
from aliquot.embedded.api.statuses import StatusError
from aliquot.embedded.api.store import Store

__all__ = ["Registry", "Store", "ServedResource", "StatusError"]

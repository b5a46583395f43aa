"""A Kubernetes API server in memory, for `aliquot demo` and for tests: no root, no compiler, plain HTTP on loopback.

Follow a request: `front` (the sender: `identity`) -> `server` (HTTP) -> `routes` (the path's resource) -> `rights`
(RBAC) -> `registry` (the API's rules, with `creation`, `updates`, `deletion`, each resource's `strategy`,
and `admission` for policies) -> `owning_store` -> `answers` and `watching` of `aliquot.apiserver`.
`schema` has the fields of all kinds. `faults` describes faults for tests, and `injection` makes them happen.
"""

from aliquot.apiserver.statuses import StatusError
from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import WritableResource

__all__ = ["Registry", "OwningStore", "WritableResource", "StatusError"]

"""A Kubernetes API server in memory, for `aliquot demo` and for tests: no root, no compiler, plain HTTP on loopback.

Follow a request: `front` (who sends it: `identity`) -> `server` (HTTP) -> `routes` (what the path names) -> `rights`
(whether they may) -> `registry` (the API's rules, with `creation`, `updates`, `deletion`, each resource's `strategy`,
`apply` for server-side apply, and `admission` for policies) -> `store` (memory and event log) -> `answers`, `watching`.
What fields there are is in `schema`; what can be made to go wrong is in `faults`, and `injection` does it.
"""

from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import Resource
from aliquot.embedded.api.statuses import StatusError
from aliquot.embedded.api.store import Store

__all__ = ["Registry", "Store", "Resource", "StatusError"]

"""Permission to write: the Lease, its term, and our account's RBAC rights."""

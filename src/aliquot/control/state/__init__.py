"""Observed cluster state and claims: pure bookkeeping, no I/O."""

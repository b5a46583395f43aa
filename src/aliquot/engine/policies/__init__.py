"""Policies choose among cards and nodes that fit. Each policy has its own file; two tables list them by name."""

from aliquot.engine.policies.table import GPU_POLICIES, NODE_POLICIES, PolicyTable

__all__ = ["GPU_POLICIES", "NODE_POLICIES", "PolicyTable"]

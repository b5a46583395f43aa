"""How to choose among cards and nodes that fit: one file per policy, found by name in two tables."""

from aliquot.engine.policies.table import GPU_POLICIES, NODE_POLICIES, PolicyTable

__all__ = ["GPU_POLICIES", "NODE_POLICIES", "PolicyTable"]

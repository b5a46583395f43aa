"""The two ValidatingAdmissionPolicies by which the API server itself refuses stale leaders and forged placements."""

STALE_EPOCH = "aliquot: the epoch is not that of the current term of leadership"
"""In the message of every refusal by the fencing policy, whatever else it says: who reads it is not the leader."""

"""The ValidatingAdmissionPolicies by which the API server itself refuses stale leaders and forged placements."""

from aliquot.control.admission.manifests import ACTIONS, NAMESPACE, manifests
from aliquot.model.admission import STALE_EPOCH

__all__ = ["ACTIONS", "NAMESPACE", "STALE_EPOCH", "manifests"]

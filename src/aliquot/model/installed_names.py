"""Names in a cluster that an installation may change by its configuration: these are the defaults."""

SERVER_NAMESPACE = "aliquot-system"
SERVER_LEASE = "aliquot-server"
QUOTA_NAMESPACE, QUOTA_MAP, QUOTA_KEY = "kube-system", "gpuquota", "gpu_quota"
"""The ConfigMap with the quotas, and its key."""

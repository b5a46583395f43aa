"""Whether the cluster state still says what the API server says."""

"""Comparison of the cluster state with the API server."""

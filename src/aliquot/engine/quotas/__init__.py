"""Quotas per namespace and GPU model: the map, what is used, what is left to a request."""

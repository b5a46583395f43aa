"""Quotas per namespace and GPU model: the limits, what is used, and what is left to a request."""

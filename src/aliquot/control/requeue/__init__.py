"""Selects waiting pods that fit now, and makes kube-scheduler retry them."""

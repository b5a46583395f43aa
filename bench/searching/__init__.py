"""Pods that are hard to place."""

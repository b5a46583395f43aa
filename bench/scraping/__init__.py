"""A control plane with a large cluster whose agents report load."""

"""What the expected workload makes of a node: how much of it stays idle in the end, and what becomes scarce."""

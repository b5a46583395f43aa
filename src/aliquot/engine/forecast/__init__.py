"""What the expected workload will make of a node: how much of it stays idle, and which rooms become scarce."""

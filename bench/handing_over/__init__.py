"""What the benchmark of the agent runs beside it."""

"""The pieces of the benchmark `memory`."""

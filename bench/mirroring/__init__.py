"""The pieces of the benchmark `mirror`: a cluster as bytes, a server that tells it, and those who listen."""

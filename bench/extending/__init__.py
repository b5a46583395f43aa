"""What the benchmark of extenders runs: a cluster to know, our server and its peer, and who calls them."""

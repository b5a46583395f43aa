"""What the cluster shows and what is claimed in it: pure bookkeeping, no I/O."""

"""Benchmarks: `make bench`. Each prints ratios against a peer of the same run; absolute times prove nothing."""

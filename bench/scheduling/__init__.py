"""What the benchmark of throughput runs: a real kube-scheduler with a queue of pods."""

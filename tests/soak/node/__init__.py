"""Parts of the soak on real nodes: its pods, what is killed meanwhile, and what is wrong."""

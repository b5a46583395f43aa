"""Other people's objects that the control plane follows while it may read them."""

"""Optional objects of others that the control plane watches if it may read them."""

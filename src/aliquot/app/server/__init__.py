"""`aliquot server`: builds control plane, endpoints and ports from the configuration, and runs them."""

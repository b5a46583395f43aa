"""Who may write: the Lease, its term, and the rights of our account."""

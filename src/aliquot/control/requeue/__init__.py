"""Which waiting pods kube-scheduler should try again, and telling it so."""

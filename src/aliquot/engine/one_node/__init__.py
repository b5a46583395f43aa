"""One node, one pod: a complete search for the cards of every container."""

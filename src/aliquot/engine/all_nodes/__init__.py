"""Every node at once: where a request fits, on which cards, and the most telling reason where it does not."""

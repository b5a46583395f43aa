"""All nodes at once: where a request fits, on which cards, and the most specific reason where it does not."""

"""Words that vendors put before a card's model and that do not tell one model from another."""

BRANDS = frozenset(("nvidia", "tesla", "geforce", "quadro", "gpu"))

"""One pod on one node: why a card refuses it, whether it fits, and a complete search for the cards of every
container."""

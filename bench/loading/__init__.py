"""A cluster whose pods use other amounts of their cards than they asked for."""

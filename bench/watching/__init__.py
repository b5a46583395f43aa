"""Many watches of one server, and what they cost it."""

"""Loops that act on pods by themselves: our own scheduler, and the observer."""

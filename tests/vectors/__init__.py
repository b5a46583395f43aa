"""Cases that the original systems decide in a known way, as data: `pytest -m vectors`."""

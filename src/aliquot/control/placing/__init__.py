"""The one way to write a placement to the API server, and what is written with it."""

"""The only code that writes placements to the API server, and the data written with them."""

"""The originals' extenders under their own names, flags and variables. Each is `aliquot server` with one endpoint."""

"""The originals' extenders by their own names, flags and variables: each is `aliquot server` with one endpoint open."""

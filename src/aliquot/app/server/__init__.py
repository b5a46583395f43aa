"""What `aliquot server` is made of."""

"""What `aliquot demo` is made of."""

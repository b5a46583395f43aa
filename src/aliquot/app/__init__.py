"""Assembly: what `aliquot server`, `aliquot demo` and the originals' programs are made of."""

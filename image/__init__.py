"""Makes Aliquot's container images without a Docker engine and without root: Debian packages, wheels, one archive."""

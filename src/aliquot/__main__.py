"""`python -m aliquot`, where the `aliquot` command is not on the path."""

from aliquot.cli import main

main(prog_name="aliquot")

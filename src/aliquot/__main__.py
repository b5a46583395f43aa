"""`python -m aliquot`, for when the `aliquot` command is not on the PATH."""

from aliquot.cli import main

main(prog_name="aliquot")

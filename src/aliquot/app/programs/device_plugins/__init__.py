"""The originals' device plugins: each is `aliquot agent` with one dialect."""

from aliquot.app import light_start

light_start.prepare()  # before the programs' own imports

"""The originals' extenders under their own names, flags and variables. Each is `aliquot server` with one endpoint."""

from aliquot.app.process_signals import handle_sigterm_early

handle_sigterm_early()  # before the programs' own imports, which take their time

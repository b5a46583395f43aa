"""The originals' programs under their own names, flags and variables.

An extender is `aliquot server` with one endpoint. The device plugins are in `device_plugins/`.
"""

from aliquot.app.process_signals import handle_sigterm_early

handle_sigterm_early()  # before the programs' own imports, which take their time

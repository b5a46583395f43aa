"""Assembly: each program of Aliquot, put together from the other packages. Commands in `cli/` parse and call this.

What may enter: code that connects packages. Decisions, protocols and storage belong to the packages themselves.
"""

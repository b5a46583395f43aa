"""`aliquot simulate`: from options to tables, plots and JSON."""

"""Hours of histories would print millions of lines: only errors are worth reading."""

from aliquot import logs

logs.configure("critical")

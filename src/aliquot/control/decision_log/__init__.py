"""Decisions on disk: written, read and replayed."""

"""Aliquot: GPU sharing and scheduling for Kubernetes."""

__version__ = "0.1.0"

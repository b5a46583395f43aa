"""Writes on waiting GPU pods why they wait, also where the scheduler refused them without asking us."""

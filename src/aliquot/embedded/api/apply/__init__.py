"""Server-side apply: who manages which fields (`managers`), as sets of paths (`paths`), and what an apply makes of an
object (`merging`). What is merged and what is replaced stands in `schema`.
"""

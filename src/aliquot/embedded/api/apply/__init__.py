"""Server-side apply: field managers (`managers`), sets of field paths (`paths`), and the merge itself (`merging`).

`schema` says which fields are merged and which are replaced.
"""

"""Reports for people: who holds what, who uses what, who waits and why.

A report is a pure function of a `ClusterView` to a value (`Report`). `kubectl gpu` prints it, and the server's read
endpoints answer it as JSON. Only `reading` does I/O.
"""

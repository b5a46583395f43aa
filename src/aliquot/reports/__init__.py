"""Reports for people: who holds what, who uses what, who waits and why. There is one text for one fact.

A report is a pure function of a cluster state and what else is known. `kubectl gpu` prints it, the server's read
endpoints answer it as JSON, and the leader writes the reasons on the pods. Only `reading` does I/O.
"""

"""The configuration of server and agent: declared once, read from file, variables and flags, and followed live.

What may enter: the declaration of keys and how they are read, checked and shown. What a value means is up to its
consumer. The agent imports this package too, so it must stay cheap to import.
"""

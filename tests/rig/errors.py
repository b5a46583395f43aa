"""What goes wrong in the rig, in words for the person who started it."""


class RigError(Exception):
    """The rig cannot go on; the message says what happened and what to do."""

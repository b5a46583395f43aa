"""What goes wrong while an image is made, in words for the person who started it."""


class ImageError(Exception):
    """The image cannot be made; the message says what happened and what to do."""

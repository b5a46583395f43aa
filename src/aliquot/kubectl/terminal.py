"""What a terminal may be told."""

import re

COMMANDS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Characters that move the cursor, turn the text round or do worse, as a pattern."""

_COMMANDS = re.compile(COMMANDS)


def without_commands(text: str) -> str:
    """The text with `?` for each of these characters: names and addresses must not command the terminal."""
    return _COMMANDS.sub("?", text)

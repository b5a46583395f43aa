"""Errors of libraries in plain words, without Python's names and without repeating the sentence around them."""

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

_WORDS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EISDIR: "it is a folder",
}


def why(error: Exception) -> str:
    """The reason, in words that complete \"... cannot be read: \"."""
    import ssl  # only now: most programs never need the words

    import yaml

    match error:
        case yaml.YAMLError():
            return _of_yaml(error)
        case ssl.SSLError():  # its errno is not the system's
            return str(error)
        case UnicodeDecodeError():
            return "it is not UTF-8 text"
        case KeyError():
            return f"{error.args[0]} is missing"
        case OSError(errno=int(number)) if number > 0:
            # not strerror, since asyncio replaces it by a sentence of its own
            return _WORDS.get(number) or _lowercased(os.strerror(number))
        case OSError(strerror=str(text)) if text:
            return _lowercased(text)
    return str(error) or type(error).__name__


def _of_yaml(error: "yaml.YAMLError") -> str:
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark or error.context_mark
        return f"line {mark.line + 1}: {error.problem}" if mark else error.problem
    return str(error).partition("\n")[0]


def _lowercased(text: str) -> str:
    return text[:1].lower() + text[1:]

"""Foreign errors in plain words: without Python's names for them, and without what the sentence around says already."""

import errno
import os
import ssl

import yaml

_WORDS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "a part of its path is no folder",
    errno.EISDIR: "it is a folder",
}


def why(error: Exception) -> str:
    match error:
        case yaml.YAMLError():
            return _of_yaml(error)
        case ssl.SSLError():  # its numbers are not the system's
            return str(error)
        case UnicodeDecodeError():
            return "it is no UTF-8 text"
        case KeyError():
            return f"{error.args[0]} is missing"
        case OSError(errno=int(number)) if number > 0:
            # not the error's own text: asyncio has a sentence of its own there
            return _WORDS.get(number) or _begun_small(os.strerror(number))
        case OSError(strerror=str(text)) if text:
            return _begun_small(text)
    return str(error) or type(error).__name__


def _of_yaml(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark or error.context_mark
        return f"line {mark.line + 1}: {error.problem}" if mark else error.problem
    return str(error).partition("\n")[0]


def _begun_small(text: str) -> str:
    return text[:1].lower() + text[1:]

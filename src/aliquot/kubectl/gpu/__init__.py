"""`kubectl gpu`, the program kubectl-gpu. Each command has its own file, which is imported only when the command runs.

A command is a module with `EPILOG` (an example), `add_options(parser)` and `run(options)`, which returns an exit code.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

COMMANDS = {
    "nodes": "Show nodes and their cards: what is allocated, what is used.",
    "pods": "Show pods with cards: who holds what, and who uses what.",
    "explain": "Explain why a pod waits and what would help, or what it has and where.",
    "top": "Show how busy cards, pods or namespaces are, live.",
    "queue": "Show which pods wait for cards, since when, and behind whom.",
    "waste": "Show what pods hold and do not use.",
    "whatif": "Show where pods would go if they were created now.",
    "quota": "Show or set how much of which model a namespace may use.",
    "cordon": "Close cards of a node to new pods.",
    "uncordon": "Open cards again that a person has closed.",
    "doctor": "Examine the installation, and say what to do about each finding.",
    "dump": "Write what this shows, without secrets, to a file for others.",
    "completion": "Print a script that completes commands in your shell.",
}

COMPLETE = "__complete"
"""What the shells' scripts call."""


_UNCOLLECTED = 1_000_000
"""Objects between two searches for garbage. The default searches again and again through what is only growing."""


def main(arguments: Sequence[str] | None = None) -> None:
    from aliquot.kubectl.gpu.parsing import parse

    if arguments is None:
        gc.set_threshold(_UNCOLLECTED)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [COMPLETE]:
        from aliquot.kubectl.gpu.completing import main as complete

        complete(words[1:])
        return
    options = parse(words, COMMANDS)
    code = _run(options.command, options)
    if arguments is None:
        _leave(code)
    sys.exit(code)


def _run(name: str, options: object) -> int:
    from aliquot.errors import AliquotError
    from aliquot.kubectl.gpu.output import say
    from aliquot.lazy_log import silenced

    try:
        with silenced():
            code: int = import_module(f"aliquot.kubectl.gpu.{name}").run(options)
        sys.stdout.flush()
    except AliquotError as error:
        say(f"error: {error}")
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        return 0
    except KeyboardInterrupt:
        return 130
    return code


def _leave(code: int) -> NoReturn:
    """End the process at once. Python would free one object after another, a tenth of the time of a short command."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code)

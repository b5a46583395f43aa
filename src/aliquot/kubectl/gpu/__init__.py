"""`kubectl gpu`, the program kubectl-gpu. Each command has its own file, which is imported only when the command runs.

A command is a module with `EPILOG` (an example), `add_options(parser)` and `run(options)`, which returns an exit code.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "nodes": "Show nodes and their cards: what is allocated, what is used.",
    "pods": "Show pods with cards: who holds what, and who uses what.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    from aliquot.kubectl.gpu.parsing import parse

    options = parse(list(sys.argv[1:] if arguments is None else arguments), COMMANDS)
    sys.exit(_run(options.command, options))


def _run(name: str, options: object) -> int:
    from aliquot.errors import AliquotError

    try:
        code: int = import_module(f"aliquot.kubectl.gpu.{name}").run(options)
        sys.stdout.flush()
    except AliquotError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    return code

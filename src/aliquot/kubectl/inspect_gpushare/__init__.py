"""`kubectl inspect gpushare [-d] [NODE]`: the original's command and its output, on any cluster.

It needs no server: it reads nodes, pods and the annotations of gpushare, no matter who wrote them. Where the original
prints in a random order, the order here is by name and by index.
"""

import sys
from collections.abc import Sequence

USAGE = """Usage: kubectl inspect gpushare [-d] [NODE]

Shows how much GPU memory is allocated on each node, and with -d by each pod.

  -d    details: one line per pod
"""


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    names = [word for word in words if not word.startswith("-")]
    flags = [word.lstrip("-") for word in words if word.startswith("-")]
    if {"h", "help"} & set(flags):
        sys.stdout.write(USAGE)
        sys.exit(0)
    if unknown := [flag for flag in flags if flag not in ("d", "d=true", "d=false")]:
        sys.stderr.write(f"flag provided but not defined: -{unknown[0]}\n{USAGE}")
        sys.exit(2)
    sys.exit(_run(names[0] if names else "", is_detailed=bool(flags) and flags[-1] != "d=false"))


def _run(node: str, *, is_detailed: bool) -> int:
    from aliquot.errors import AliquotError
    from aliquot.kubectl.inspect_gpushare.reading import read
    from aliquot.kubectl.inspect_gpushare.text import details, summary
    from aliquot.kubectl.terminal import without_commands

    try:
        nodes = read(node)
        sys.stdout.write(without_commands(details(nodes) if is_detailed else summary(nodes)))
        sys.stdout.flush()
    except AliquotError as error:
        sys.stdout.write(without_commands(f"Failed due to {error}"))
        return 1
    except BrokenPipeError:
        sys.stderr.close()
    return 0

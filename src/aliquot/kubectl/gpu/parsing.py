"""The command line: common options, and those of the command that is meant."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NoReturn

import aliquot

PROGRAM = "kubectl gpu"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message}; see {self.prog} --help\n")
        sys.exit(1)


def parse(arguments: Sequence[str], commands: Mapping[str, str]) -> argparse.Namespace:
    """The options, with `command`. Prints help, or what is wrong, and exits."""
    common = common_options()
    name = _command_of(arguments, common)
    if name not in commands:
        _without_command(arguments, name, commands, common)
    rest = list(arguments)
    rest.remove(name)
    parser = command_parser(name, commands[name])
    options = parser.parse_args(rest)
    options.command = name
    return options


def command_parser(name: str, summary: str) -> argparse.ArgumentParser:
    module = import_module(f"aliquot.kubectl.gpu.{name}")
    parser = _Parser(
        prog=f"{PROGRAM} {name}",
        description=summary,
        epilog=module.EPILOG,
        parents=[common_options()],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_options(parser)
    return parser


def _command_of(arguments: Sequence[str], common: argparse.ArgumentParser) -> str:
    """The first word that is neither an option nor the value of one."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0]
    _, rest = common.parse_known_args(arguments)
    return next((word for word in rest if not word.startswith("-")), "")


def _without_command(
    arguments: Sequence[str], name: str, commands: Mapping[str, str], common: argparse.ArgumentParser
) -> NoReturn:
    lines = "\n".join(f"  {command:<12} {summary}" for command, summary in commands.items())
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND [options]",
        description="See who holds which GPUs, who uses them, and why pods wait.",
        epilog=f"commands:\n{lines}\n\n{PROGRAM} COMMAND --help shows the options of a command, with an example.",
        parents=[common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kubectl-gpu {aliquot.__version__}")
    if name:
        parser.error(f"there is no command {name!r}")
    parser.parse_args(arguments)
    parser.print_help()
    sys.exit(0)


def common_options() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False, prog=PROGRAM)
    group = parser.add_argument_group("common options")
    group.add_argument("--kubeconfig", default="", metavar="FILE", help="path of the kubeconfig")
    group.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig to use")
    group.add_argument("--from", dest="archive", default="", metavar="FILE", help="read what `dump` wrote, no cluster")
    group.add_argument("-n", "--namespace", default="", metavar="NAME", help="namespace [default: the context's]")
    group.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")
    group.add_argument(
        "--quotas",
        default="",
        metavar="NAMESPACE/NAME",
        help="ConfigMap with the quotas, as the server is told [default: kube-system/gpuquota]",
    )
    group.add_argument("-o", "--output", choices=("json", "yaml", "wide"), default="", help="how to print the result")
    group.add_argument("--no-headers", action="store_true", help="print no titles of columns")
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours and bars [default: on a terminal]"
    )
    return parser

"""Completes a command line, in the form that kubectl asks of its plug-ins: candidates, then a directive."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence

from aliquot.kubectl.gpu import COMMANDS
from aliquot.kubectl.gpu.parsing import command_parser, common_options
from aliquot.lazy_log import silenced

_FILES, _NO_FILES = ":0", ":4"
"""cobra's directives: whether the shell may offer names of files."""


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    with silenced():
        found, directive = complete(words)
    sys.stdout.write("".join(f"{each}\n" for each in (*found, directive)))


def complete(words: Sequence[str]) -> tuple[list[str], str]:
    """The candidates for the last word, and the directive."""
    *before, last = words or [""]
    name = next((word for word in before if word in COMMANDS), "")
    parser = command_parser(name, "") if name else common_options()
    options = {text: action for action in parser._actions for text in action.option_strings}
    action = options.get(before[-1]) if before else None
    if action is not None and action.nargs != 0:
        return _values(action, last, before[:-1])
    if last.startswith("-"):
        return _starting(last, options), _NO_FILES
    if not name:
        return _starting(last, COMMANDS), _NO_FILES
    positional = _positional(parser, before[before.index(name) + 1 :], options)
    return _values(positional, last, before) if positional else ([], _NO_FILES)


def _positional(
    parser: argparse.ArgumentParser, given: Sequence[str], options: Mapping[str, argparse.Action]
) -> argparse.Action | None:
    """The argument that the next word without a dash is."""
    count, skip = 0, False
    for word in given:
        if skip or word.startswith("-"):
            skip = not skip and word in options and options[word].nargs != 0
        else:
            count += 1
    places = [action for action in parser._actions if not action.option_strings]
    if count < len(places):
        return places[count]
    return places[-1] if places and places[-1].nargs in ("*", "+") else None


def _values(action: argparse.Action, last: str, before: Sequence[str]) -> tuple[list[str], str]:
    if action.choices is not None:
        return _starting(last, map(str, action.choices)), _NO_FILES
    kind = str(action.metavar or "")
    if kind == "FILE":
        return [], _FILES
    return _starting(last, _names("NAMESPACE" if action.dest == "namespace" else kind, before)), _NO_FILES


def _starting(beginning: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(beginning))


def _names(kind: str, before: Sequence[str]) -> Iterable[str]:
    """Names in the cluster; none if it cannot be read."""
    from aliquot.errors import AliquotError
    from aliquot.kubectl.gpu.session import Session
    from aliquot.reports.nodes import nodes_report
    from aliquot.reports.pods import pods_report
    from aliquot.reports.view import Purpose

    options, _ = common_options().parse_known_args(before)
    try:
        session = Session(options)
        view = session.view(purpose=Purpose.SHOWING)
    except AliquotError:
        return
    match kind:
        case "POD":
            yield from (pod.name for pod in pods_report(view, session.chosen).pods)
        case "NAMESPACE":
            yield from {pod.metadata.namespace for pod in view.pods.values()}
        case "NODE":
            yield from (node.name for node in nodes_report(view).nodes)
        case "NODE/CARD":
            yield from (f"{node.name}/{card.index}" for node in nodes_report(view).nodes for card in node.cards)

"""Options that several commands share."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from aliquot import logs
from aliquot.dialects import Dialects, make_dialects
from aliquot.errors import BadConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

SETTINGS: dict[str, Any] = {
    "auto_envvar_prefix": "ALIQUOT",
    "show_default": True,
    "max_content_width": 110,
    "help_option_names": ["-h", "--help"],
}


def option(*names: str, **how: Any) -> Callable[[_Command], _Command]:
    """An option that is also an environment variable, and says so."""
    return click.option(*names, show_envvar=True, **how)


def folder(name: str, default: str, help: str) -> Callable[[_Command], _Command]:  # noqa: A002 - click's word
    return option(name, default=default, type=click.Path(path_type=Path), help=help)


def kubeconfig(command: _Command) -> _Command:
    where = "[default: $KUBECONFIG, the pod's service account, ~/.kube/config]"
    path = option("--kubeconfig", type=click.Path(dir_okay=False), help=f"How to reach the API server.  {where}")
    context = option(
        "--context", default="", show_default=False, help="The kubeconfig's context.  [default: its current one]"
    )
    return path(context(command))


class NamespaceName(click.ParamType[str]):
    name = "namespace"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _LABEL.fullmatch(value):
            self.fail(f"{value!r} is no name of a namespace: small letters, digits and -, at most 63", param, ctx)
        return value


def prefix(command: _Command) -> _Command:
    help_text = "Another prefix for a dialect's names, such as tencent=gpu.example.com; may be repeated."
    return option("--prefix", metavar="DIALECT=PREFIX", multiple=True, help=help_text)(command)


def dialects_with(prefixes: Sequence[str]) -> Dialects:
    """The dialects, each with the prefix that an option gives it. Raises BadConfig."""
    return make_dialects(pairs("--prefix", prefixes, "DIALECT=PREFIX"))


def pairs(origin: str, texts: Sequence[str], wanted: str) -> dict[str, str]:
    """What a flag or a variable says as NAME=VALUE, once per name. Raises BadConfig."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in given:
            raise BadConfig(f"{origin} {text}: write {wanted}, once per {wanted.partition('=')[0].lower()}")
        given[name] = value
    return given


def log_level(command: _Command) -> _Command:
    return option("--log-level", default="info", type=click.Choice(list(logs.LEVELS)), help="What to log.")(command)

"""Values that are right each for itself, and together or for this program are not."""

from collections.abc import Callable, Collection, Iterator
from itertools import combinations

from aliquot.config import meaning
from aliquot.config.tree import SETTINGS, Configuration
from aliquot.dialects import make_dialects, standard_dialects
from aliquot.errors import BadConfig

_GPUSHARE_PORT, _NATIVE_PORT = "doors.gpushare.port", "doors.native.port"
_TERMS = ("lease.duration", "lease.renew", "lease.retry")
_PREFIXES = ("prefixes",)
_POLICIES = ("policies.gpu", "policies.node")
_EXTENDER_SECONDS = 5.0
"""How long kube-scheduler waits for an extender unless its httpTimeout says otherwise."""


def clashes(tree: Configuration, unread: Collection[str] = ()) -> Iterator[str]:
    """Every problem of a tree in which the `unread` keys have their defaults for want of a good value: nothing that
    depends on these is looked at."""
    for paths, check in _CHECKS:
        if not set(paths) & set(unread):
            yield from check(tree)


def doubts(tree: Configuration) -> list[str]:
    """What can be used, but hardly is what was meant."""
    commit = tree.commit
    if commit.budget + commit.look <= _EXTENDER_SECONDS:
        return []
    return [
        f"commit.budget and commit.look are together {commit.budget + commit.look:g} s: kube-scheduler waits "
        f"{_EXTENDER_SECONDS:g} s for a bind, unless its httpTimeout is longer"
    ]


def _ports(tree: Configuration) -> Iterator[str]:
    doors = tree.doors
    ports = {_NATIVE_PORT: doors.native.port}
    if doors.gpushare.enabled:
        ports = {_GPUSHARE_PORT: doors.gpushare.port, **ports}
    for one, other in combinations(ports, 2):
        if ports[one] == ports[other] != 0:
            yield f"{one} and {other} are both {ports[one]}: each door needs a port of its own"


def _lease(tree: Configuration) -> Iterator[str]:
    try:
        meaning.control_settings(tree)
    except BadConfig as error:
        yield f"{', '.join(_TERMS)}: {error}"


def _prefixes(tree: Configuration) -> Iterator[str]:
    """One by one first, so that each is named; then whether they go together."""
    wrong = list(_unless_made(*({name: prefix} for name, prefix in tree.prefixes.items())))
    yield from wrong or _unless_made(tree.prefixes)


def _unless_made(*choices: dict[str, str]) -> Iterator[str]:
    for prefixes in choices:
        try:
            make_dialects(prefixes)
        except BadConfig as error:
            yield str(error)


def _policies(tree: Configuration) -> Iterator[str]:
    yield from meaning.wrong_policies(standard_dialects(), tree)


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[Configuration], Iterator[str]]], ...] = (
    ((_GPUSHARE_PORT, _NATIVE_PORT, "doors.gpushare.enabled"), _ports),
    (_TERMS, _lease),
    (_PREFIXES, _prefixes),
    (_POLICIES, _policies),
)
assert all(path in SETTINGS for paths, _ in _CHECKS for path in paths), "a check names a key that there is not"

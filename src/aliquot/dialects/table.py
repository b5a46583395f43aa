"""The table of dialects: those of this package, and those that other packages register as entry points."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aliquot.dialects.aliquot import Aliquot
from aliquot.dialects.elastic import Elastic
from aliquot.dialects.gpushare import GpuShare
from aliquot.dialects.hami import Hami
from aliquot.dialects.keti import Keti
from aliquot.dialects.nvidia import Nvidia
from aliquot.dialects.protocol import Dialect
from aliquot.dialects.tencent import Tencent
from aliquot.errors import BadConfig, BadDemand
from aliquot.model import Pod

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "aliquot.dialects"
_REMEMBERED_SETS, _REMEMBERED_NAMES = 256, 32
"""Sets of resources whose dialects are remembered: most pods and nodes of a cluster name the same few. A hostile pod
names 20,000."""

OURS: tuple[type[Dialect], ...] = (
    Aliquot,
    GpuShare,
    Tencent,
    Elastic,
    Keti,
    Nvidia,
    Hami,
)


class Dialects(Mapping[str, Dialect]):
    """The dialects of a process, by name."""

    def __init__(self, dialects: Mapping[str, Dialect]) -> None:
        self._dialects = dict(dialects)
        self._guarding = lru_cache(_REMEMBERED_SETS)(self._find_guarding)

    def __getitem__(self, name: str) -> Dialect:
        return self._dialects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dialects)

    def __len__(self) -> int:
        return len(self._dialects)

    def values(self) -> ValuesView[Dialect]:
        return self._dialects.values()

    def of(self, pod: Pod) -> Dialect | None:
        """The dialect whose resources a pod asks for; None for a pod without GPU. Raises BadDemand if there are two."""
        return only_one(self.spoken_by(pod))

    def spoken_by(self, pod: Pod) -> Sequence[Dialect]:
        """The dialects in which a pod asks for something. For a pod that asks for 0 of everything, the first dialect
        that it names."""
        concerned = self.guarding(pod.extended_resources)
        speaking = [dialect for dialect in concerned if dialect.speaks(pod)]
        return speaking or [dialect for dialect in concerned if dialect.mentions(pod)][:1]

    def guarding(self, resources: frozenset[str]) -> Sequence[Dialect]:
        """The dialects that guard any of these extended resources. No other dialect can be spoken with them."""
        is_small = len(resources) <= _REMEMBERED_NAMES
        return self._guarding(resources) if is_small else self._find_guarding(resources)

    def _find_guarding(self, resources: frozenset[str]) -> Sequence[Dialect]:
        return tuple(dialect for dialect in self._dialects.values() if any(map(dialect.guards, resources)))


def only_one(speaking: Sequence[Dialect]) -> Dialect | None:
    """The one dialect that a pod speaks; None if it speaks none. Raises BadDemand if there are two."""
    if len(speaking) > 1:
        names = ", ".join(dialect.name for dialect in speaking)
        raise BadDemand(f"the pod asks for resources of several dialects ({names}); use one of them")
    return speaking[0] if speaking else None


def make_dialects(prefixes: Mapping[str, str] | None = None) -> Dialects:
    """Every installed dialect, each with its configured or its standard prefix. Raises BadConfig."""
    kinds = {kind.name: kind for kind in (*OURS, *_installed())}
    if unknown := set(prefixes or {}) - set(kinds):
        raise BadConfig(
            f"prefixes: unknown dialect {', '.join(sorted(unknown))}; valid dialects are {', '.join(kinds)}"
        )
    dialects = {name: kind((prefixes or {}).get(name, "")) for name, kind in kinds.items()}
    _refuse_shared_resources(dialects.values())
    return Dialects(dialects)


def _refuse_shared_resources(dialects: Iterable[Dialect]) -> None:
    """A pod that asked for such a resource would speak two dialects and could never be placed."""
    owners: dict[str, Dialect] = {}
    for dialect in dialects:
        for resource in dialect.resources:
            other = owners.setdefault(resource.name, dialect)
            may_both = dialect.name == other.shares_resources_with or other.name == dialect.shares_resources_with
            may_share = may_both and dialect.prefix == dialect.standard_prefix
            if other is not dialect and not may_share:
                raise BadConfig(
                    f"prefixes: dialects {other.name} and {dialect.name} would both have the resource {resource.name}; "
                    "give one of them another prefix"
                )


@cache
def standard_dialects() -> Dialects:
    return make_dialects()


def _registered() -> "Iterable[EntryPoint]":
    """importlib.metadata takes 1.5 MB of memory, so it is imported only if a package names the group."""
    if not any(map(_names_our_group, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)


def _names_our_group(folder: str) -> bool:
    for file in Path(folder).glob("*-info/entry_points.txt"):
        with suppress(OSError):  # as importlib.metadata does
            if ENTRY_POINTS.encode() in file.read_bytes():
                return True
    return False


def _installed() -> Iterator[type[Dialect]]:
    names = {ours.name for ours in OURS}
    for entry in _registered():
        try:
            kind = entry.load()
        except Exception as error:  # another package's code may raise anything, and the error must name the culprit
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} cannot be loaded: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Dialect)):
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} is not a subclass of Dialect")
        missing = [word for word in ("name", "standard_prefix") if not hasattr(kind, word)]
        if missing := sorted((*missing, *kind.__abstractmethods__)):
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} does not define {', '.join(missing)}")
        if kind.name in names:
            raise BadConfig(f"entry point {entry.value}: dialect {kind.name} already exists; choose another name")
        names.add(kind.name)
        yield kind

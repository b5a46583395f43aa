"""The table of dialects: those of this package, and those that other packages bring as entry points."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points

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

ENTRY_POINTS = "aliquot.dialects"

_OURS: tuple[type[Dialect], ...] = (
    Aliquot,
    GpuShare,
    Tencent,
    Elastic,
    Keti,
    Nvidia,
    Hami,
)


class Dialects(Mapping[str, Dialect]):
    """The dialects that a process speaks, by name."""

    def __init__(self, dialects: Mapping[str, Dialect]) -> None:
        self._dialects = dict(dialects)

    def __getitem__(self, name: str) -> Dialect:
        return self._dialects[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dialects)

    def __len__(self) -> int:
        return len(self._dialects)

    def of(self, pod: Pod) -> Dialect | None:
        """The dialect whose resources a pod asks for; None for a pod without GPU. Two in one pod are refused."""
        speaking = [dialect for dialect in self._dialects.values() if dialect.speaks(pod)]
        if len(speaking) > 1:
            names = ", ".join(dialect.name for dialect in speaking)
            raise BadDemand(f"the pod asks for resources of several dialects ({names}); use one of them")
        return speaking[0] if speaking else None


def make_dialects(prefixes: Mapping[str, str] | None = None) -> Dialects:
    """Every dialect that is installed, each with its configured or its standard prefix. Raises BadConfig."""
    kinds = {kind.name: kind for kind in (*_OURS, *_installed())}
    if unknown := set(prefixes or {}) - set(kinds):
        raise BadConfig(f"prefixes: no dialect is called {', '.join(sorted(unknown))}; there are {', '.join(kinds)}")
    return Dialects({name: kind((prefixes or {}).get(name, "")) for name, kind in kinds.items()})


@cache
def standard_dialects() -> Dialects:
    return make_dialects()


def _installed() -> Iterator[type[Dialect]]:
    names = {ours.name for ours in _OURS}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            kind = entry.load()
        except Exception as error:  # somebody else's package: any error is possible, and it must name the culprit
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} cannot be loaded: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Dialect)):
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} is no subclass of Dialect")
        missing = [word for word in ("name", "standard_prefix") if not hasattr(kind, word)]
        if missing := sorted((*missing, *kind.__abstractmethods__)):
            raise BadConfig(f"entry point {entry.value} of {ENTRY_POINTS} does not say {', '.join(missing)}")
        if kind.name in names:
            raise BadConfig(f"entry point {entry.value}: dialect {kind.name} exists already; choose another name")
        names.add(kind.name)
        yield kind

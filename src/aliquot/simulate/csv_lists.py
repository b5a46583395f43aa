"""Lists in CSV: those of the openb trace, and one's own in the same columns.

Nodes: `sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`, and optionally `gpu_memory_mib` and `count`.
Pods: `name`, `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli`, and optionally `gpu_memory_mib`, `gpu_spec`, `class` or
`qos`, `creation_time`, `deletion_time` and `count`.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from aliquot.engine.workload import WHOLE
from aliquot.errors import BadInput
from aliquot.model import Host, Memory, Part
from aliquot.model.bounds import MAX_CARDS, MAX_MIB
from aliquot.model.host import UNKNOWN
from aliquot.plain import why
from aliquot.simulate.making import CARD_MIB, part_of_share, simulated_node, simulated_request
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod

_Row = Mapping[str, str]
_MOST_ALIKE = 100_000
"""Nodes or pods of one row."""


def read_nodes(path: Path) -> list[SimulatedNode]:
    """Raises BadInput."""
    return [node for line, row in _rows(path, ("sn", "gpu")) for node in _nodes(_Fields(path, line, row))]


def read_pods(path: Path) -> list[SimulatedPod]:
    """Raises BadInput."""
    return [pod for line, row in _rows(path, ("name", "num_gpu")) for pod in _pods(_Fields(path, line, row))]


class _Fields:
    """The columns of a row, with errors that say where."""

    def __init__(self, path: Path, line: int, row: _Row) -> None:
        self._where = f"{path}, line {line}"
        self._row = row

    def text(self, name: str) -> str:
        return (self._row.get(name) or "").strip()

    def number(self, name: str, default: int = 0, most: int = UNKNOWN) -> int:
        text = self.text(name)
        try:
            number = int(text) if text else default
        except ValueError:
            number = -1
        if not 0 <= number <= most:
            raise self.wrong(f"{name}: {text!r} is not a whole number from 0 to {most}")
        return number

    def time(self, name: str) -> float | None:
        text = self.text(name)
        try:
            return float(text) if text else None
        except ValueError as error:
            raise self.wrong(f"{name}: {text!r} is not a number of seconds") from error

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in self.text(name).split("|"))))

    def wrong(self, why: str) -> BadInput:
        return BadInput(f"{self._where}: {why}")


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, _Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin files with a mark
            reader = csv.DictReader(file)
            if missing := [name for name in needed if name not in (reader.fieldnames or ())]:
                raise BadInput(
                    f"{path} has no column {missing[0]!r}; it has {', '.join(reader.fieldnames or ['none'])}"
                )
            for row in reader:
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        text = why(error) if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path} cannot be read: {text}") from error


def _nodes(row: _Fields) -> Iterator[SimulatedNode]:
    count = row.number("count", 1, _MOST_ALIKE)
    for number in range(count):
        name = row.text("sn") if count == 1 else f"{row.text('sn')}-{number:04d}"
        host = Host(row.number("cpu_milli", UNKNOWN), row.number("memory_mib", UNKNOWN))
        cards = row.number("gpu", most=MAX_CARDS)
        yield simulated_node(name, row.text("model"), cards, row.number("gpu_memory_mib", CARD_MIB, MAX_MIB), host)


def _pods(row: _Fields) -> Iterator[SimulatedPod]:
    count = row.number("count", 1, _MOST_ALIKE)
    cards = row.number("num_gpu", most=MAX_CARDS)
    milli = row.number("gpu_milli", WHOLE, WHOLE)
    part = _part(row, cards, milli, row.number("gpu_memory_mib")) if cards else None
    host = Host(row.number("cpu_milli"), row.number("memory_mib"))
    arrives, leaves = row.time("creation_time") or 0.0, row.time("deletion_time")
    if leaves is not None and leaves < arrives:
        raise row.wrong("deletion_time is before creation_time")
    for number in range(count):
        name = row.text("name") if count == 1 else f"{row.text('name')}-{number:04d}"
        request = simulated_request(name, part, host, row.names("gpu_spec"))
        yield SimulatedPod(request, row.text("class") or row.text("qos"), arrives=arrives, leaves=leaves)


def _part(row: _Fields, cards: int, milli: int, mib: int) -> Part:
    if mib:
        return Part(cards, memory=Memory(mib))
    if not milli:
        raise row.wrong("gpu_milli is 0, but num_gpu is not")
    return part_of_share(cards, milli)

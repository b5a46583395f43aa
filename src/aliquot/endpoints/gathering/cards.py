"""How much of models, nodes and cards is held, and how much of the rest is of use."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.endpoints.gathering.largest import largest
from aliquot.endpoints.gathering.pauses import Pauses
from aliquot.engine import Bools, Floats
from aliquot.engine.block import Block
from aliquot.engine.gauges import Expected, gauging
from aliquot.engine.workload import WHOLE
from aliquot.model import CORES
from aliquot.model.bounds import MIB
from aliquot.model.selling import share_by


def gather(plane: ControlPlane, pauses: Pauses) -> Iterator[None]:
    blocks = [_Held.of(block) for block in plane.cluster.fleet.blocks]
    yield from pauses()
    _read_models(blocks)
    yield from pauses()
    yield from _read_nodes(plane, blocks, pauses)
    yield from _read_cards(blocks, plane.settings.metrics.cards, pauses)
    measured = yield from pauses.between(gauging(plane.cluster.fleet, Expected.of(plane.cluster.expected)))
    metrics.FRAGMENTED.set(measured.fragments / WHOLE)
    metrics.STARVED.set(measured.starved / WHOLE)
    metrics.MODEL_STRANDED.rows = [((each.model,), each.stranded / WHOLE) for each in measured.models]
    yield from pauses()


@dataclass(frozen=True)
class _Held:
    """What pods hold of the cards of a block, [rows, width]. Cards that are cut into MIG instances do not count: their
    instances do."""

    block: Block
    counts: Bools
    share: Floats
    mib: Floats

    @classmethod
    def of(cls, block: Block) -> "_Held":
        counts = block.has & ~block.is_cut
        mib = np.where(counts, block.mib - block.free_mib, 0).astype(np.float64)
        taken = CORES - block.free_cores, mib, block.used_slots
        return cls(block, counts, np.where(counts, share_by(np.maximum, taken, block.mib, block.slots), 0.0), mib)


def _read_models(blocks: list[_Held]) -> None:
    sums: dict[str, Floats] = {}
    for held in blocks:
        block = held.block
        for number, model in enumerate(block.models):
            own = held.counts & (block.model_id == number)
            if own.any():
                cards, mib = (own.sum(), held.share[own].sum()), (block.mib[own].sum(), held.mib[own].sum())
                found = np.array([*cards, *mib, (own & ~block.sellable).sum()], np.float64)
                sums[model] = sums.get(model, np.zeros(5)) + found
    tables = (
        (metrics.MODEL_CARDS, 1),
        (metrics.MODEL_ALLOCATED, 1),
        (metrics.MODEL_MEMORY, MIB),
        (metrics.MODEL_ALLOCATED_MEMORY, MIB),
        (metrics.MODEL_UNAVAILABLE, 1),
    )
    for place, (table, unit) in enumerate(tables):
        table.rows = [((model,), float(own[place]) * unit) for model, own in sorted(sums.items())]


def _read_nodes(plane: ControlPlane, blocks: list[_Held], pauses: Pauses) -> Iterator[None]:
    rows: list[tuple[str, int, float, float, float]] = []
    for held in blocks:
        sums = zip(
            held.block.names,
            held.counts.sum(axis=0).tolist(),
            held.share.sum(axis=0).tolist(),
            np.where(held.counts, held.block.mib, 0).sum(axis=0).tolist(),
            held.mib.sum(axis=0).tolist(),
            strict=True,
        )
        rows += [row for row in sums if row[1]]
        yield from pauses()
    shown = [rows[place] for place in largest("nodes", [row[2] for row in rows], plane.settings.metrics.nodes)]
    yield from pauses()
    metrics.NODE_CARDS.rows = [((row[0],), row[1]) for row in shown]
    metrics.NODE_ALLOCATED.rows = [((row[0],), row[2]) for row in shown]
    yield from pauses()
    metrics.NODE_MEMORY.rows = [((row[0],), row[3] * MIB) for row in shown]
    metrics.NODE_ALLOCATED_MEMORY.rows = [((row[0],), row[4] * MIB) for row in shown]
    yield from pauses()
    silences = ((row[0], plane.heartbeats.silence(row[0])) for row in shown)
    metrics.NODE_SILENCE.rows = [((name,), silence) for name, silence in silences if silence is not None]
    yield from pauses()


def _read_cards(blocks: list[_Held], most: int, pauses: Pauses) -> Iterator[None]:
    """The fullest cards."""
    shares = np.concatenate([held.share[held.counts] for held in blocks])
    places = np.concatenate([np.argwhere(held.counts) for held in blocks])
    numbers = np.repeat(np.arange(len(blocks)), [int(held.counts.sum()) for held in blocks])
    rows: list[tuple[tuple[str, str, str], float, float]] = []
    yield from pauses()
    for place in largest("cards", shares, most):
        held, (row, column) = blocks[int(numbers[place])], places[place].tolist()
        gpu = held.block.state_at(column).cards.gpus[row]
        labels = gpu.model, held.block.names[column], gpu.uuid
        rows.append((labels, float(held.share[row, column]), float(held.mib[row, column])))
        yield from pauses()
    metrics.CARD_ALLOCATED.rows = [(labels, share) for labels, share, _ in rows]
    metrics.CARD_ALLOCATED_MEMORY.rows = [(labels, mib * MIB) for labels, _, mib in rows]
    yield from pauses()

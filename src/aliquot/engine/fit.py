"""Which nodes can take a request, which card it would get there, and why the others cannot."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.fleet import Fleet
from aliquot.engine.policies import GPU_POLICIES
from aliquot.model import Placement, Reason, Request, Unit, cut, peak

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Judgement:
    """A request judged on the whole Fleet as it was then."""

    fleet: Fleet
    request: Request
    fits: NDArray[np.bool_]
    row: NDArray[np.int64]
    left_mib: NDArray[np.int64]

    def refusals(self, nodes: Iterable[str]) -> dict[str, Reason]:
        """Why each of these nodes that cannot take the request cannot; the others are left out."""
        # plain lists: a numpy scalar costs more than the rest of the loop
        fits, has_cards = self.fits.tolist(), self.fleet.has_cards
        refused: dict[str, Reason] = {}
        for node in nodes:
            column = self.fleet.column(node)
            if column is None:
                refused[node] = Reason.UNKNOWN_NODE
            elif not fits[column]:
                refused[node] = Reason.NO_CARD_FITS if has_cards(column) else Reason.NO_GPUS
        return refused

    def refusal(self, node: str) -> Reason | None:
        return self.refusals([node]).get(node)

    def placement(self, node: str) -> Placement | None:
        column = self.fleet.column(node)
        if column is None or not self.fits[column]:
            return None
        gpu = self.fleet.gpu(column, int(self.row[column]))
        unit_mib = int(self.fleet.unit_mib[column])
        return Placement(
            node=node,
            dialect=self.request.dialect,
            containers={container.name: (cut(container.part, gpu, unit_mib),) for container in self.request.containers},
        )

    def best(self, nodes: Iterable[str]) -> str | None:
        """The node whose chosen card is left with the least memory; equal ones by name."""
        candidates = list(nodes)
        refused = self.refusals(candidates)
        fitting = (node for node in candidates if node not in refused)
        return min(fitting, key=lambda node: (self._left(node), node), default=None)

    def _left(self, node: str) -> int:
        column = self.fleet.column(node)
        assert column is not None, "only nodes that fit are compared"
        return int(self.left_mib[column])


def judge(fleet: Fleet, request: Request, gpu_policy: str) -> Judgement:
    """Judge a request on every card at once. Reads the Fleet, changes nothing."""
    width = fleet.width
    amount = peak((container.life, container.part.memory.amount) for container in request.containers)
    unit = request.containers[0].part.memory.unit
    need_mib = amount * (fleet.unit_mib[:width] if unit is Unit.NODE else np.ones(width, np.int64))
    # a card whose cores are sold out takes nobody, not even a request that names no cores
    need_cores = max(1, peak((container.life, container.part.cores) for container in request.containers))
    free_mib = fleet.free_mib[:, :width]
    possible = fleet.sellable[:, :width] & (free_mib >= need_mib) & (fleet.free_cores[:, :width] >= need_cores)
    rank = np.where(possible, GPU_POLICIES[gpu_policy](fleet)[:, :width], _NEVER)
    row = rank.argmin(axis=0)
    left = np.take_along_axis(free_mib, row[np.newaxis], axis=0)[0] - need_mib
    fits = np.asarray(possible.any(axis=0), dtype=np.bool_)
    return Judgement(fleet, request, fits, row, left)

"""A request seen against a Fleet, as policies see it."""

from collections.abc import Sequence

import numpy as np

from aliquot.engine.all_nodes.room import Room, need_of, takes, wanted
from aliquot.engine.block import Block
from aliquot.engine.policies import GPU_POLICIES
from aliquot.engine.state import NodeState
from aliquot.engine.view import PolicyOutcome, PolicySettings, View
from aliquot.model import Request


def fleet_of(*states: NodeState) -> Block:
    fleet = Block(max(8, *(len(state.cards.gpus) for state in states)))
    for state in states:
        fleet.put(state.cards, state.used)
    return fleet


def view_of(fleet: Block, request: Request, settings: PolicySettings | None = None) -> View:
    """The first container's."""
    part = request.containers[0].part
    need, allowed = need_of(fleet, part), wanted(fleet, request)
    possible = takes(fleet, Room.now(fleet), need)
    if allowed is not None:
        possible = possible & allowed
    return View(
        fleet,
        request,
        part,
        settings or PolicySettings(),
        possible,
        need.mib,
        need.cores,
        fleet.free_mib,
        fleet.free_cores,
    )


def order(policy: str, view: View, column: int = 0) -> list[int]:
    """The possible rows of a node, the preferred one first."""
    ranks = np.broadcast_to(GPU_POLICIES[policy].rank(view), view.possible.shape)[:, column]
    return sorted(np.nonzero(view.possible[:, column])[0].tolist(), key=lambda row: (ranks[row], row))


def outcome_of(view: View, rows: Sequence[Sequence[int]] | None = None) -> PolicyOutcome:
    """The first container put on these rows of each column; on the lowest that are possible if none are named."""
    if rows is None:
        chosen = np.argsort(~view.possible, axis=0, kind="stable")[: view.count]
    else:
        chosen = np.array(rows, np.int64).T
    fits = np.asarray(view.possible.sum(axis=0) >= view.count)
    return PolicyOutcome(
        view.fleet, view.request, view.settings, fits, [view], [view.request.containers[0].life], lambda: [chosen]
    )

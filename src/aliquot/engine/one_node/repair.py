"""Finds packings that are hard to build but easy to repair: it puts every container somewhere, then moves and swaps
containers until no card is overloaded. It proves nothing when it fails."""

import random
from collections.abc import Sequence
from math import exp

from aliquot.engine.effort import Effort

_MOVES = 60_000
_MOVE_STEPS = 4
"""The cost of a move, in steps of the effort."""
_TRIES = 3
_HOT, _COLD = 0.3, 0.005
"""The overload, as a share of a card, up to which a worsening move is made: at the start and at the end."""


def mend(overload: Sequence[Sequence[float]], wants: Sequence[int], effort: Effort) -> Sequence[int] | None:
    """The containers of each card, as bits. `overload` is by card and by set of containers, 0 if the card holds the
    set."""
    chance = random.Random(0)
    for _ in range(_TRIES):
        members = _somewhere(overload, wants, chance)
        if _mended(members, overload, chance, effort):
            return members
    return None


def _somewhere(overload: Sequence[Sequence[float]], wants: Sequence[int], chance: random.Random) -> list[int]:
    """Puts each container on the cards that it overloads least."""
    members = [0] * len(overload)
    for container in chance.sample(range(len(wants)), len(wants)):
        cards = sorted(
            range(len(overload)), key=lambda card: (overload[card][members[card] | 1 << container], chance.random())
        )
        for card in cards[: wants[container]]:
            members[card] |= 1 << container
    return members


def _mended(members: list[int], overload: Sequence[Sequence[float]], chance: random.Random, effort: Effort) -> bool:
    cards = range(len(members))
    total = sum(overload[card][members[card]] for card in cards)
    cooling = (_COLD / _HOT) ** (1 / _MOVES)
    heat = _HOT
    for _ in range(_MOVES):
        if total < 1e-9 and not any(overload[card][members[card]] for card in cards):
            return True
        if not effort.take(_MOVE_STEPS):
            return False
        heat *= cooling
        first, second = chance.sample(cards, 2)
        here, there = members[first], members[second]
        goes, comes = _pick(here & ~there, chance), _pick(there & ~here, chance)
        if not goes or (comes and chance.random() < 0.3):
            goes, comes = (goes, 0) if goes else (0, comes)
        if not goes and not comes:
            continue
        then_here, then_there = here ^ goes ^ comes, there ^ goes ^ comes
        worse = (
            overload[first][then_here] + overload[second][then_there] - overload[first][here] - overload[second][there]
        )
        if worse <= 0 or chance.random() < exp(-worse / heat):
            members[first], members[second] = then_here, then_there
            total += worse
    return False


def _pick(members: int, chance: random.Random) -> int:
    """A random one of the bits, 0 if there is none."""
    count = members.bit_count()
    if count == 0:
        return 0
    for _ in range(chance.randrange(count)):
        members &= members - 1
    return members & -members

"""Finds packings that are hard to build but easy to mend: everybody is put somewhere, then containers move or change
places until no card is overloaded. It proves nothing when it fails."""

import random
from collections.abc import Sequence
from math import exp

from aliquot.engine.effort import Effort

_MOVES = 60_000
_MOVE_STEPS = 4
"""What a move costs, in steps of the effort."""
_TRIES = 3
_HOT, _COLD = 0.3, 0.005
"""Up to which overload, as a share of a card, a move for the worse is made: at first and at last."""


def mend(overload: Sequence[Sequence[float]], wants: Sequence[int], effort: Effort) -> Sequence[int] | None:
    """Per card its containers as bits. `overload` is by card and by set of containers, 0 where the card holds it."""
    chance = random.Random(0)
    for _ in range(_TRIES):
        members = _somewhere(overload, wants, chance)
        if _mended(members, overload, chance, effort):
            return members
    return None


def _somewhere(overload: Sequence[Sequence[float]], wants: Sequence[int], chance: random.Random) -> list[int]:
    """Each container on the cards that it overloads least."""
    members = [0] * len(overload)
    for one in chance.sample(range(len(wants)), len(wants)):
        cards = sorted(
            range(len(overload)), key=lambda card: (overload[card][members[card] | 1 << one], chance.random())
        )
        for card in cards[: wants[one]]:
            members[card] |= 1 << one
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
        one, other = chance.sample(cards, 2)
        here, there = members[one], members[other]
        goes, comes = _pick(here & ~there, chance), _pick(there & ~here, chance)
        if not goes or (comes and chance.random() < 0.3):
            goes, comes = (goes, 0) if goes else (0, comes)
        if not goes and not comes:
            continue
        then_here, then_there = here ^ goes ^ comes, there ^ goes ^ comes
        worse = overload[one][then_here] + overload[other][then_there] - overload[one][here] - overload[other][there]
        if worse <= 0 or chance.random() < exp(-worse / heat):
            members[one], members[other] = then_here, then_there
            total += worse
    return False


def _pick(members: int, chance: random.Random) -> int:
    """One of the bits, 0 if there is none."""
    count = members.bit_count()
    if count == 0:
        return 0
    for _ in range(chance.randrange(count)):
        members &= members - 1
    return members & -members

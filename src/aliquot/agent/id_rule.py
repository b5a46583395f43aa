"""Which device ids are told to kubelet as unhealthy when cards fail.

kubelet's ids mix cards: it gives a container any ids, and the placement names the cards. So the number of healthy ids
follows from the cards, and not their names. kubelet does not restart a container with an unhealthy id after its own
restart. So an id of a container on good cards is never unhealthy, and ids of containers on failed cards come first.
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice


@dataclass(frozen=True)
class IdHolder:
    """A container with its ids of one resource. `is_on_good_cards` if none of its cards has failed, or if nobody knows
    its cards."""

    ids: frozenset[str]
    is_on_good_cards: bool


@dataclass(frozen=True)
class ListedIds:
    """The ids for kubelet, and those of them that are unhealthy."""

    ids: tuple[str, ...]
    unhealthy: Set[str]


def list_ids(own: Sequence[str], failed: Set[str], holders: Collection[IdHolder]) -> ListedIds:
    """The list of a resource. `own` are the ids of all cards, `failed` those of cards that have failed.

    An id that a container holds stays listed, even if no card has it any more. As many ids are healthy as the good
    cards have, if enough ids are free.
    """
    held = frozenset[str]().union(*(holder.ids for holder in holders))
    kept = frozenset[str]().union(*(holder.ids for holder in holders if holder.is_on_good_cards))
    ids = (*own, *sorted(held.difference(own)))
    surplus = len(ids) - (len(own) - len(failed))
    if not surplus:
        return ListedIds(ids, frozenset())
    of_failed_cards = (device for device in own if device in failed and device not in held)
    of_good_cards = (device for device in own if device not in failed and device not in held)
    in_order = chain(sorted(held - kept), of_failed_cards, of_good_cards)
    return ListedIds(ids, frozenset(islice(in_order, surplus)))

"""Each container's part of the energy that its cards have used."""

from collections import defaultdict
from collections.abc import Mapping

from aliquot.agent.devices import Usage
from aliquot.agent.usage.shares import Share

_Key = tuple[str, str, str]
"""UID of a pod, name of a container, UUID of a card."""


class EnergyShares:
    """Of what a card uses between two collections, a container gets the part that its cores are of the card. What a
    card uses while nobody computes is nobody's. The parts never make more than the whole."""

    def __init__(self) -> None:
        self._counted: Mapping[str, float] = {}
        """What each card had counted at the collection before."""
        self._joules: Mapping[_Key, float] = {}

    def count(self, usage: Mapping[str, Usage], shares: Mapping[_Key, Share]) -> Mapping[_Key, float]:
        """What each container has used since it was first seen. Forgets containers that are gone."""
        counted = {uuid: own.joules for uuid, own in usage.items() if own.joules is not None}
        used = {uuid: max(0.0, joules - self._counted.get(uuid, joules)) for uuid, joules in counted.items()}
        cores: dict[str, float] = defaultdict(float)
        for (_, _, uuid), share in shares.items():
            cores[uuid] += share.cores or 0.0
        self._counted = counted
        self._joules = {
            key: self._joules.get(key, 0.0) + used[key[2]] * (share.cores or 0.0) / max(1.0, cores[key[2]])
            for key, share in shares.items()
            if key[2] in used
        }
        return self._joules

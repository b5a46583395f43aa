"""What a pod wants beyond its size: which cards, near each other or not, chosen how."""

import re
from dataclasses import dataclass, field
from enum import Enum

ANY_MIG = "any"

_WORD = re.compile(r"[a-z]+\d+[a-z]*|[a-z0-9]+")
_SAY_NOTHING = frozenset(("nvidia", "tesla", "geforce", "quadro", "gpu"))


class Topology(Enum):
    """How several cards of one container must be connected."""

    ANY = "any"
    NUMA = "numa"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class ModelWish:
    """Any of these models, or with `avoid` none of them.

    Names are forgiving: "a100" is any "NVIDIA A100-SXM4-40GB", but "T4" is no "T400". With `substring` a name matches
    anywhere, as HAMi has it.
    """

    names: tuple[str, ...]
    avoid: bool = False
    substring: bool = False

    def allows(self, model: str) -> bool:
        return self.avoid is not any(self._names(name, model) for name in self.names)

    def _names(self, name: str, model: str) -> bool:
        return name.casefold() in model.casefold() if self.substring else is_model(name, model)


def is_model(name: str, model: str) -> bool:
    """Whether a model is what a user calls so: the name's words appear in the model's, in order, side by side."""
    wanted, has = _words(name), _words(model)
    return bool(wanted) and any(has[at : at + len(wanted)] == wanted for at in range(len(has) - len(wanted) + 1))


def _words(name: str) -> list[str]:
    return [word for word in _WORD.findall(name.casefold()) if word not in _SAY_NOTHING]


@dataclass(frozen=True)
class Wishes:
    """Every wish must hold. `mig` is a profile such as 1g.5gb, or `any`; without it MIG instances are left alone."""

    models: tuple[ModelWish, ...] = ()
    only_uuids: frozenset[str] | None = None
    not_uuids: frozenset[str] = field(default_factory=frozenset)
    mig: str = ""
    topology: Topology = Topology.ANY
    node_policy: str = ""
    gpu_policy: str = ""

    def allows_model(self, model: str) -> bool:
        return all(wish.allows(model) for wish in self.models)

    def allows_uuid(self, uuid: str) -> bool:
        return uuid not in self.not_uuids and (self.only_uuids is None or uuid in self.only_uuids)

    def allows_instance(self, profile: str) -> bool:
        """`profile` is "" for a card that is no MIG instance."""
        return self.mig in (profile, ANY_MIG) if profile else not self.mig

    def __and__(self, other: "Wishes") -> "Wishes":
        """Both; where only one can hold (a policy, a topology), the left one if it says anything."""
        only = self.only_uuids
        if other.only_uuids is not None:
            only = other.only_uuids if only is None else only & other.only_uuids
        return Wishes(
            models=self.models + other.models,
            only_uuids=only,
            not_uuids=self.not_uuids | other.not_uuids,
            mig=self.mig or other.mig,
            topology=self.topology if self.topology is not Topology.ANY else other.topology,
            node_policy=self.node_policy or other.node_policy,
            gpu_policy=self.gpu_policy or other.gpu_policy,
        )

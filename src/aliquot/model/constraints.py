"""What a pod wants beyond its size: which cards, how they must be connected, and which policies choose them."""

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from aliquot.brands import BRANDS

ANY_MIG = "any"

_WORD = re.compile(r"[a-z0-9]+")
_GLUED = (
    (re.compile(r"\b([rg]tx)(?=[a-z]?\d)"), r"\1 "),  # rtx3090
    (re.compile(r"(?<=\d)(ti|super|d)\b"), r" \1"),  # 3080ti
    (re.compile(r"\b(\d+) ?gi?b?\b"), r"\1gb"),  # 40g, 40 GB
    (re.compile(r"\bmax-q\b"), "maxq"),
)
_ANOTHER_MODEL = frozenset(("ti", "super", "d", "ada", "blackwell", "laptop", "mobile", "maxq", "mig"))
"""Words that make it a different card with the same number. `is_model` never assumes them."""


class Topology(Enum):
    """How several cards of one container must be connected."""

    ANY = "any"
    NUMA = "numa"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class ModelConstraint:
    """Any of these models, or with `avoid` none of them.

    Names are forgiving: "a100" and "A100 40GB" match an "A100-SXM4-40GB", but "T4" does not match a "T400", and
    "RTX 3080" does not match an "RTX 3080 Ti". With `substring`, a name matches anywhere in the model, as in HAMi.
    """

    names: tuple[str, ...]
    avoid: bool = False
    substring: bool = False

    def allows(self, model: str) -> bool:
        return self.avoid is not any(self._names(name, model) for name in self.names)

    def _names(self, name: str, model: str) -> bool:
        return name.casefold() in model.casefold() if self.substring else is_model(name, model)


@lru_cache(4096)
def is_model(name: str, model: str) -> bool:
    """Whether a user's name fits a model: it is the driver's name, or has some of its words in any order."""
    if name.strip().casefold() == model.strip().casefold() != "":
        return True
    wanted, has = _words(name), _words(model)
    return bool(wanted) and wanted <= has and has & _ANOTHER_MODEL <= wanted


@lru_cache(4096)
def _words(name: str) -> frozenset[str]:
    text = name.casefold()
    for pattern, plain in _GLUED:
        text = pattern.sub(plain, text)
    return frozenset(_WORD.findall(text)) - BRANDS


@dataclass(frozen=True)
class Constraints:
    """All constraints must hold. `mig` is a profile such as 1g.5gb, or `any`; without it the pod gets no MIG
    instance."""

    models: tuple[ModelConstraint, ...] = ()
    only_uuids: frozenset[str] | None = None
    not_uuids: frozenset[str] = field(default_factory=frozenset)
    mig: str = ""
    topology: Topology = Topology.ANY
    node_policy: str = ""
    gpu_policy: str = ""

    def allows_model(self, model: str) -> bool:
        return all(constraint.allows(model) for constraint in self.models)

    def allows_uuid(self, uuid: str) -> bool:
        return uuid not in self.not_uuids and (self.only_uuids is None or uuid in self.only_uuids)

    def allows_instance(self, profile: str) -> bool:
        """`profile` is "" for a card that is not a MIG instance."""
        return self.mig in (profile, ANY_MIG) if profile else not self.mig

    def __and__(self, other: "Constraints") -> "Constraints":
        """Both constraints. Where only one value can hold (a policy, a topology), the left one wins if it is set."""
        if other is NO_CONSTRAINTS:
            return self
        if self is NO_CONSTRAINTS:
            return other
        only = self.only_uuids
        if other.only_uuids is not None:
            only = other.only_uuids if only is None else only & other.only_uuids
        return Constraints(
            models=self.models + other.models,
            only_uuids=only,
            not_uuids=self.not_uuids | other.not_uuids,
            mig=self.mig or other.mig,
            topology=self.topology if self.topology is not Topology.ANY else other.topology,
            node_policy=self.node_policy or other.node_policy,
            gpu_policy=self.gpu_policy or other.gpu_policy,
        )


NO_CONSTRAINTS = Constraints()

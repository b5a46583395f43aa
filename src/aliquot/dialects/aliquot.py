"""aliquot: our own vocabulary, which can express everything that the model can.

The resource `aliquot.io/gpu` counts cards. Annotations say how much of each card, for the whole pod or for one
container: kubelet could not list the MiB of eight large cards.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import ceil
from typing import Any, NamedTuple, TypeVar

from aliquot.dialects.protocol import Dialect, Resource, cards_asked, memory_given, names_in, plain_number, sample
from aliquot.errors import BadDemand, BadQuantity
from aliquot.model import (
    ANY_MIG,
    CORES,
    NO_CONSTRAINTS,
    Constraints,
    ContainerRequest,
    Life,
    Memory,
    ModelConstraint,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Request,
    Topology,
    Unit,
)
from aliquot.model.admission import OUR_KEYS
from aliquot.model.bounds import MAX_MIB, MAX_SLOTS
from aliquot.model.quantity import parse
from aliquot.model.records import INVENTORY, PLACEMENT

IDS_PER_CARD = 64
"""The most containers that can share a card."""

_SIZES = ("cores", "memory", "cores-limit", "memory-limit", "sharing", "slots")
"""Written as `aliquot.io/<word>` for the pod, or `<word>.aliquot.io/<container>` for one container."""
_CONSTRAINTS = ("model", "not-model", "uuid", "not-uuid", "mig", "topology", "node-policy", "gpu-policy")
_FOR_USERS = (*_SIZES, "together", *_CONSTRAINTS)
_WRITTEN_BY_US = tuple(key.partition("/")[2] for key in (*OUR_KEYS, INVENTORY))

_EXCLUSIVE, _TIME_SLICED, _MPS = "exclusive", "time-sliced", "mps"
_WORDS_OF_MODE = {
    _EXCLUSIVE: ("sharing",),
    _TIME_SLICED: ("sharing", "cores", "memory", "cores-limit", "memory-limit"),
    _MPS: _SIZES,
}

_MIB = 2**20
_MIG = re.compile(r"(\dc\.)?\dg\.\d{1,4}gb(\+[a-z.]{1,16})?", re.ASCII)
_POLICY = re.compile(r"[a-z][a-z0-9.-]{0,62}", re.ASCII)


class _Said(NamedTuple):
    """One annotation: its full key, so that errors can name it, and its text."""

    key: str
    text: str

    def wrong(self, why: str) -> BadDemand:
        return BadDemand(f"{self.key}: {self.text[:64]!r} {why}")


_Sizes = Mapping[str, _Said]
_Value = TypeVar("_Value")


class Aliquot(Dialect):
    name = "aliquot"
    standard_prefix = "aliquot.io"

    @property
    def gpu(self) -> str:
        return f"{self.prefix}/gpu"

    @property
    def resources(self) -> Sequence[Resource]:
        return (Resource(self.gpu, "a card, or a part of one where the annotations name it", "aliquot-gpu.sock"),)

    @property
    def placement_keys(self) -> Sequence[str]:
        return ()

    @property
    def size_keys(self) -> Sequence[str]:
        of_pod = (f"{self.prefix}/{word}" for word in (*_SIZES, "together"))
        return (*of_pod, *(f"{word}.{self.prefix}/*" for word in _SIZES))

    # -- demand

    def demand(self, pod: Pod) -> Request:
        request = replace(self._request(pod, self._part), together=self._is_together(pod))
        self._refuse_unknown_keys(pod, [asked.name for asked in request.containers])
        if request.together:
            self._refuse_unequal(request)
        return request

    def held(self, pod: Pod) -> Request:
        """Users can rewrite annotations while the pod runs. An annotation that became unreadable must not free the
        pod's part."""
        try:
            return self._request(pod, self._part)
        except BadDemand:
            recorded = PLACEMENT in pod.metadata.annotations  # then the record says the size
            return self._request(pod, lambda cards, _: Part(cards, whole=not recorded))

    def demand_can_change(self, pod: Pod) -> bool:
        return True

    def _request(self, pod: Pod, part: Callable[[int, _Sizes], Part]) -> Request:
        containers = (
            ContainerRequest(container.name, part(cards, self._sizes(pod, container.name)), life)
            for container, life in pod.containers()
            if (cards := cards_asked(container, self.gpu))
        )
        return self.request(pod, containers)

    def _said(self, pod: Pod, word: str) -> _Said | None:
        key = f"{self.prefix}/{word}"
        text = pod.metadata.annotations.get(key)
        return None if text is None else _Said(key, text)

    def _sizes(self, pod: Pod, container: str) -> _Sizes:
        """The size annotations of a container: its own, else those of the pod."""
        of_pod = {word: said for word in _SIZES if (said := self._said(pod, word))}
        keys = {word: f"{word}.{self.prefix}/{container}" for word in _SIZES}
        annotations = pod.metadata.annotations
        own = {word: _Said(key, annotations[key]) for word, key in keys.items() if key in annotations}
        if "sharing" in own:
            takes = _WORDS_OF_MODE.get(own["sharing"].text, _SIZES)
            of_pod = {word: said for word, said in of_pod.items() if word in takes}
        return of_pod | own

    def _part(self, cards: int, said: _Sizes) -> Part:
        sharing = _sharing(said)
        if sharing == _EXCLUSIVE:
            return Part(cards, whole=True)
        cores = _read(said, "cores", _percent, 0)
        slots = _read(said, "slots", _slots, 1) if sharing == _MPS else 0
        memory = _read(said, "memory", _memory, Memory(slots, Unit.SLOT) if slots else Memory())
        if not (cores or memory.amount or slots):
            raise BadDemand(
                f"{self.prefix}/cores, {self.prefix}/memory: the pod asks for no part of a card; set one of them, "
                "or leave both out for whole cards"
            )
        cores_limit = _read(said, "cores-limit", _percent, None)
        memory_limit = _read(said, "memory-limit", _memory, None)
        if cores_limit is not None and cores_limit < cores:
            raise said["cores-limit"].wrong(f"is less than the request, {cores}")
        if memory_limit and memory_limit.unit is memory.unit and memory_limit.amount < memory.amount:
            raise said["memory-limit"].wrong(f"is less than the request, {said['memory'].text}")
        return Part(cards, cores, memory, False, slots, cores_limit, memory_limit)

    def _is_together(self, pod: Pod) -> bool:
        said = self._said(pod, "together")
        if said and said.text not in ("true", "false"):
            raise said.wrong("is neither true nor false")
        return bool(said and said.text == "true")

    def _refuse_unequal(self, request: Request) -> None:
        if len({asked.part.cards for asked in request.containers}) > 1:
            raise BadDemand(
                f"{self.prefix}/together: containers on the same cards must all ask for the same number of {self.gpu}"
            )
        at_once = [asked for asked in request.containers if asked.life is not Life.INIT]
        if len(at_once) > 1 and any(asked.part.whole for asked in at_once):
            raise BadDemand(f"{self.prefix}/together: whole cards cannot be shared; set {self.prefix}/cores or memory")

    def _refuse_unknown_keys(self, pod: Pod, containers: Sequence[str]) -> None:
        """Refuses misspelt keys, so that no constraint is silently ignored."""
        for key in pod.metadata.annotations:
            domain, _, name = key.partition("/")
            word = domain.removesuffix(f".{self.prefix}")
            if domain == self.prefix:
                if name not in _FOR_USERS and name not in _WRITTEN_BY_US:
                    raise BadDemand(f"annotation {key} is unknown; {_nearest(f'{self.prefix}/', name, _FOR_USERS)}")
            elif word != domain:
                if word not in _SIZES:
                    raise BadDemand(
                        f"annotation {key} is unknown; {_nearest('', word, _SIZES, f'.{self.prefix}/{name}')}"
                    )
                if name not in containers:
                    raise BadDemand(
                        f"annotation {key}: no container {name} asks for {self.gpu}; "
                        f"{_nearest(f'{domain}/', name, containers)}"
                    )

    def _refuse_other_keys(self, pod: Pod) -> None:
        """On a pod of another dialect only our constraints are allowed; the pod's own resources say how much it
        gets."""
        for key in pod.metadata.annotations:
            domain, _, name = key.partition("/")
            word = name if domain == self.prefix else domain.removesuffix(f".{self.prefix}")
            if word == domain or (domain == self.prefix and word in (*_CONSTRAINTS, *_WRITTEN_BY_US)):
                continue
            if word in (*_SIZES, "together"):
                raise BadDemand(
                    f"annotation {key} is for pods that ask for {self.gpu}; this pod's own resources say how much it "
                    "gets, so leave it out"
                )
            raise BadDemand(f"annotation {key} is unknown; {_nearest(f'{self.prefix}/', word, _CONSTRAINTS)}")

    # -- constraints, on pods of every dialect

    def constraints(self, pod: Pod) -> Constraints:
        if not self.speaks(pod):
            self._refuse_other_keys(pod)
        said = {word: said for word in _CONSTRAINTS if (said := self._said(pod, word))}
        if not said:
            return NO_CONSTRAINTS
        models = (
            ModelConstraint(_names(said[word]), avoid=word == "not-model")
            for word in ("model", "not-model")
            if word in said
        )
        return Constraints(
            models=tuple(models),
            only_uuids=frozenset(_names(said["uuid"])) if "uuid" in said else None,
            not_uuids=frozenset(_names(said["not-uuid"]) if "not-uuid" in said else ()),
            mig=_read(said, "mig", _mig, ""),
            topology=_read(said, "topology", _topology, Topology.ANY),
            node_policy=_read(said, "node-policy", _policies, ""),
            gpu_policy=_read(said, "gpu-policy", _policies, ""),
        )

    # -- records: `aliquot.io/placement` says it all

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        return None

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        return {}

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        sold = (gpu for gpu in cards.gpus if gpu.uuid not in cards.parents)
        return [(f"{gpu.uuid}::{number}", gpu.uuid) for gpu in sold for number in range(IDS_PER_CARD)]

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """Adds to the cards what the program has of each of them, in the same order. This is information only."""
        parts = placement.containers[container]
        return {
            **super().environment(pod, request, container, placement, cards),
            "ALIQUOT_CORES": ",".join(str(part.cores) for part in parts),
            **memory_given(placement, container),
        }

    def sample_pod(self) -> Mapping[str, Any]:
        annotations = {f"{self.prefix}/cores": "25", f"{self.prefix}/memory": "4Gi"}
        return sample("quarter", {self.gpu: "1"}, annotations=annotations)


# -- reading the values


def _read(said: Mapping[str, _Said], word: str, reading: Callable[[_Said], _Value], otherwise: _Value) -> _Value:
    return reading(said[word]) if word in said else otherwise


def _sharing(said: _Sizes) -> str:
    """How the card is shared: as the annotation says, else as the other size annotations imply."""
    implied = _EXCLUSIVE if not said else _MPS if "slots" in said else _TIME_SLICED
    mode = said["sharing"].text if "sharing" in said else implied
    if mode not in _WORDS_OF_MODE:
        raise said["sharing"].wrong(f"is not one of {', '.join(_WORDS_OF_MODE)}")
    for word in sorted(said.keys() - _WORDS_OF_MODE[mode]):
        raise BadDemand(
            f"{said[word].key} cannot be combined with {said['sharing'].key}: {mode}; leave one of them out"
        )
    return mode


def _percent(said: _Said) -> int:
    number = plain_number(said.text)
    if number is None or number > CORES:
        raise said.wrong(f"is not a whole percentage from 0 to {CORES}, such as 25")
    return number


def _slots(said: _Said) -> int:
    number = plain_number(said.text)
    if not number or number > MAX_SLOTS:
        raise said.wrong(f"is not a number of MPS slots from 1 to {MAX_SLOTS}")
    return number


def _memory(said: _Said) -> Memory:
    """A quantity, rounded up to MiB, or a percentage of the card."""
    if said.text.endswith("%"):
        percent = plain_number(said.text.removesuffix("%"))
        if percent is None or percent > 100:
            raise said.wrong("is not a whole percentage of the card from 0% to 100%, such as 25%")
        return Memory(percent, Unit.PERCENT)
    try:
        amount = parse(said.text)
    except BadQuantity as error:
        raise BadDemand(f"{said.key}: {error}, or a percentage of the card, such as 25%") from error
    mib = ceil(amount / _MIB)
    if amount < 0:
        raise said.wrong("is negative")
    if 0 < amount < _MIB:
        raise said.wrong("is less than 1 MiB: it counts bytes unless it has a suffix, such as 4Gi or 512Mi")
    if mib > MAX_MIB:
        raise said.wrong("is more than any GPU has")
    return Memory(mib)


def _names(said: _Said) -> tuple[str, ...]:
    names = names_in(said.key, said.text)
    if not all(name.strip() for name in said.text.split(",")):
        raise said.wrong("is not a comma-separated list of names")
    return names


def _mig(said: _Said) -> str:
    profile = said.text.casefold()
    if profile != ANY_MIG and not _MIG.fullmatch(profile):
        raise said.wrong("is neither a MIG profile, such as 1g.5gb, nor the word any")
    return profile


def _topology(said: _Said) -> Topology:
    try:
        return Topology(said.text)
    except ValueError:
        raise said.wrong(f"is not one of {', '.join(kind.value for kind in Topology)}") from None


def _policies(said: _Said) -> str:
    """One policy, or several of which the later ones break ties. The engine checks that they exist."""
    names = _names(said)
    if not all(map(_POLICY.fullmatch, names)):
        raise said.wrong("is not the name of a policy, or a comma-separated list of names")
    return ",".join(names)


def _nearest(before: str, word: str, known: Sequence[str], after: str = "") -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {before}{near[0]}{after}?"
    return f"known keys are {before}{{{', '.join(known)}}}{after}"

"""One matrix of who writes what to a pod and by which way; every API server must answer each of them alike."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from aliquot.dialects import Dialect, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.model.admission import FENCING, FORGERY
from aliquot.model.records import EPOCH, OBSERVED, PLACEMENT

SERVER = "system:serviceaccount:kube-system:aliquot-server"
AGENT = "system:serviceaccount:kube-system:aliquot-agent"
"""Accounts that may write every key, and are not kept to what Aliquot's own must write: see `reach.py`."""
USER = "mallory"
TERM = "7"
"""The number of the current term."""


class Way(Enum):
    CREATE = "create"
    PUT = "put"
    PATCH = "patch"
    STATUS = "status"
    EPHEMERAL = "ephemeralcontainers"
    RESIZE = "resize"
    BINDING = "binding"
    BINDINGS = "bindings"


UPDATES = (Way.PUT, Way.PATCH, Way.STATUS)
WITHOUT_METADATA = (Way.EPHEMERAL, Way.RESIZE)
"""The API server takes nothing of the metadata that is sent there."""
TO_A_NODE = (Way.BINDING, Way.BINDINGS)


class Outcome(Enum):
    WRITTEN = "written"
    IGNORED = "accepted and not written"
    FORGED = (403, "Forbidden", FORGERY)
    STALE = (422, "Invalid", FENCING)


@dataclass(frozen=True)
class Case:
    way: Way
    outcome: Outcome
    keys: Mapping[str, str | None]
    """What is written; None takes a key away."""
    user: str = USER
    limits: Mapping[str, str] = field(default_factory=dict)
    has: Mapping[str, str] = field(default_factory=dict)
    """What is there before."""
    where: str = "annotations"
    bound: bool = False
    in_init: bool = False


def original(dialect: str) -> str:
    """The account of the program that Aliquot replaces."""
    return f"system:serviceaccount:kube-system:{dialect}-original"


def limits(dialect: Dialect) -> Mapping[str, str]:
    (container,) = dialect.sample_pod()["spec"]["containers"]
    wanted: dict[str, Any] = container["resources"]["limits"]
    return {name: str(amount) for name, amount in wanted.items()}


def placement_key(dialect: Dialect) -> str:
    """A key of the dialect's, ours where it has none; the last one, which tends to be the odd one."""
    return dialect.placement_keys[-1].replace("*", "main") if dialect.placement_keys else PLACEMENT


DIALECTS = [standard_dialects()[kind.name] for kind in OURS]
GPUSHARE, KETI, HAMI = (standard_dialects()[name] for name in ("gpushare", "keti", "hami"))
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
CARDS = "aliyun.com/gpu-count"
PLACED = {PLACEMENT: "{}", EPOCH: TERM}


def _forged() -> Iterator[Any]:
    for dialect in DIALECTS:
        key, asked = placement_key(dialect), limits(dialect)
        ours = PLACED if key == PLACEMENT else {key: "0"}
        for way in Way:
            outcome = Outcome.IGNORED if way in WITHOUT_METADATA else Outcome.FORGED
            yield _case(f"a user's {key} by {way.value}", Case(way, outcome, ours, limits=asked))
        for way in UPDATES:
            taken = Case(way, Outcome.FORGED, {key: None}, limits=asked, has={**PLACED, key: "0"}, bound=True)
            yield _case(f"a user takes {key} away by {way.value}", taken)


def _listed() -> Iterator[Any]:
    for dialect in DIALECTS:
        key, asked = placement_key(dialect), limits(dialect)
        ours = {**PLACED, key: "0"} if key != PLACEMENT else PLACED
        for way in (Way.CREATE, *UPDATES, *TO_A_NODE):
            written = Case(way, Outcome.WRITTEN, ours, SERVER, asked)
            yield _case(f"the server's {key} by {way.value}", written)
            if key != PLACEMENT:
                theirs = Case(way, Outcome.WRITTEN, {key: "0"}, original(dialect.name), asked)
                yield _case(f"the original's {key} by {way.value}", theirs)
        mark = Case(Way.PATCH, Outcome.WRITTEN, {key: "1", EPOCH: TERM}, AGENT, asked, PLACED, bound=True)
        yield _case(f"the agent's {key}", mark)


def _case(name: str, case: Case) -> Any:
    return pytest.param(case, id=name)


_GPU = limits(GPUSHARE)

_SINGLE = [
    _case("another original's key", Case(Way.PATCH, Outcome.FORGED, {INDEX: "0"}, original("keti"), _GPU)),
    _case("an original writes our key", Case(Way.PATCH, Outcome.FORGED, PLACED, original("gpushare"), _GPU)),
    _case("our key on a pod without GPU", Case(Way.PATCH, Outcome.FORGED, PLACED)),
    _case("our key in the labels", Case(Way.PATCH, Outcome.FORGED, {EPOCH: TERM}, where="labels")),
    _case("the cards that an agent saw", Case(Way.PATCH, Outcome.FORGED, {OBSERVED: "{}"}, limits=_GPU, bound=True)),
    _case("the wake-up key", Case(Way.PATCH, Outcome.FORGED, {"aliquot.io/woken": "now"}, limits=_GPU)),
    _case("a dialect's key on a pod without GPU", Case(Way.PATCH, Outcome.WRITTEN, {INDEX: "0"})),
    _case("a dialect's key on a pod of another", Case(Way.CREATE, Outcome.WRITTEN, {INDEX: "0"}, limits=limits(KETI))),
    _case("only an init container asks", Case(Way.CREATE, Outcome.FORGED, {INDEX: "0"}, limits=_GPU, in_init=True)),
    _case(
        "a MIG instance that is on no list",
        Case(Way.CREATE, Outcome.FORGED, {placement_key(HAMI): "0"}, limits={"nvidia.com/mig-9g.900gb": "1"}),
    ),
    _case("a key that only begins like one", Case(Way.PATCH, Outcome.WRITTEN, {f"{INDEX}_2": "0"}, limits=_GPU)),
    _case("a key written as it is", Case(Way.PATCH, Outcome.WRITTEN, {INDEX: "0"}, limits=_GPU, has={INDEX: "0"})),
    _case(
        "an unrelated key of a placed pod",
        Case(Way.PATCH, Outcome.WRITTEN, {"team": "a"}, limits=_GPU, has={**PLACED, INDEX: "0"}, bound=True),
    ),
    _case(
        "an unrelated label by status",
        Case(Way.STATUS, Outcome.WRITTEN, {"team": "a"}, where="labels", limits=_GPU, has={CARDS: "1"}, bound=True),
    ),
    _case("a Binding without keys", Case(Way.BINDING, Outcome.WRITTEN, {}, limits=_GPU)),
    _case("a Binding with keys of others", Case(Way.BINDINGS, Outcome.WRITTEN, {"team": "a"}, limits=_GPU)),
    _case("a forged label in a Binding", Case(Way.BINDING, Outcome.FORGED, {INDEX: "0"}, where="labels", limits=_GPU)),
    # sizes are the users' own, until the pod is bound
    _case(
        "the size of a pod that waits",
        Case(Way.PATCH, Outcome.WRITTEN, {CARDS: "2"}, where="labels", limits=_GPU),
    ),
    _case(
        "the size of a bound pod",
        Case(Way.PATCH, Outcome.FORGED, {CARDS: "2"}, where="labels", limits=_GPU, bound=True),
    ),
    _case(
        "the size of a bound pod by status",
        Case(Way.STATUS, Outcome.FORGED, {"aliquot.io/cores": "1"}, limits={"aliquot.io/gpu": "1"}, bound=True),
    ),
    _case(
        "the size of one container",
        Case(Way.PUT, Outcome.FORGED, {"cores.aliquot.io/main": "1"}, limits={"aliquot.io/gpu": "1"}, bound=True),
    ),
    _case(
        "a size that is nobody's on that pod",
        Case(Way.PATCH, Outcome.WRITTEN, {"aliquot.io/cores": "1"}, limits=_GPU, bound=True),
    ),
    # terms of leadership
    *(
        _case(f"a former leader by {way.value}", Case(way, Outcome.STALE, {**PLACED, EPOCH: "6"}, SERVER, _GPU))
        for way in (*UPDATES, *TO_A_NODE)
    ),
    *(
        _case(f"no term by {way.value}", Case(way, Outcome.STALE, {PLACEMENT: "{}"}, SERVER, _GPU))
        for way in (*UPDATES, *TO_A_NODE)
    ),
    _case("a later term", Case(Way.BINDING, Outcome.STALE, {**PLACED, EPOCH: "8"}, SERVER, _GPU)),
    _case("an empty term", Case(Way.BINDING, Outcome.STALE, {**PLACED, EPOCH: ""}, SERVER, _GPU)),
    _case(
        "a former leader takes a placement away",
        Case(Way.PATCH, Outcome.STALE, {PLACEMENT: None}, SERVER, _GPU, {PLACEMENT: "{}", EPOCH: "6"}, bound=True),
    ),
    _case(
        "a placement of an earlier term is renewed",
        Case(Way.PATCH, Outcome.WRITTEN, PLACED, SERVER, _GPU, {PLACEMENT: "", EPOCH: "6"}, bound=True),
    ),
    _case(
        "kubelet's word on a pod of an earlier term",
        Case(Way.STATUS, Outcome.WRITTEN, {}, "system:node:n1", _GPU, {**PLACED, EPOCH: "6"}, bound=True),
    ),
]

CASES = [*_forged(), *_listed(), *_SINGLE]

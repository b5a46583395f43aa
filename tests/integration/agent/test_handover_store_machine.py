"""No history of starts, kills, rewritten annotations and deletions makes the agent hand a card out twice."""

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import sentinel

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from aliquot.agent import cdi
from aliquot.agent.checkpoint import Grant
from aliquot.agent.handover import SETTLING, HandOver
from aliquot.agent.kubelet_records import PodGrants
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.dialects import standard_dialects
from aliquot.errors import AliquotError, Refused
from aliquot.model import Placement, Pod, Slice
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import T4, make_cards, make_pod, make_uid
from tests.fakes import FakeClock
from tests.integration.agent.node import ended, runs

CARDS = make_cards()
DIALECT = standard_dialects()["aliquot"]
SIZES = st.sampled_from((1024, 5 * 1024, 10 * 1024, T4))
INDEXES = st.sampled_from((0, 1))


class _KilledError(Exception):
    """The agent ends here."""


class _Clock(FakeClock):
    """All time passes at once; the agent can be killed when it has written a spec and lets the runtime read it."""

    def __init__(self) -> None:
        super().__init__(skip=1000.0)
        self.kills = False

    async def sleep(self, seconds: float) -> None:
        if self.kills and seconds == SETTLING:
            raise _KilledError
        await super().sleep(seconds)


class _Kubelet:
    """What kubelet and the runtime know: the grants, and which pods may have containers."""

    def __init__(self, containers: Mapping[str, object]) -> None:
        self.granted: dict[str, Grant] = {}
        self._containers = containers

    async def find(self, resource: str, ids: frozenset[str], before: Set[str] = frozenset()) -> PodGrants:
        for uid, grant in self.granted.items():
            if (grant.resource, grant.ids) == (resource, ids) and not before:
                return PodGrants(uid, None, (grant,))
        raise Refused("kubelet does not know these ids")

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]:
        return gone.keys() & self.granted.keys()

    async def running(self, ended: Set[str]) -> Set[str]:
        return ended & self._containers.keys()

    async def grants(self) -> list[Grant]:
        return list(self.granted.values())


class AgentMachine(RuleBasedStateMachine):
    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._temporary = tempfile.TemporaryDirectory()
        root = Path(self._temporary.name)
        (root / "dev").mkdir()
        for gpu in CARDS.gpus:
            (root / "dev" / f"nvidia{gpu.minor}").touch()
        self._devices = NvidiaDevices(root / "dev")
        self._folder = cdi.SpecFolder(root / "cdi")
        self._folder.prepare()
        self._cdi = root / "cdi"
        self._shown: dict[str, Pod] = {}
        self._sizes: dict[str, int] = {}
        self.containers: dict[str, tuple[int, int]] = {}
        """The card and the MiB that a container really has, by the UID of its pod."""
        self._kubelet = _Kubelet(self.containers)
        self._start_agent()

    def teardown(self) -> None:
        self._loop.close()
        self._temporary.cleanup()

    def _start_agent(self) -> None:
        self._clock = _Clock()
        pods = NodePods(lambda: list(self._shown.values()))
        self._agent = HandOver(
            [DIALECT],
            standard_dialects(),
            self._kubelet,
            pods,
            NodeCards(CARDS),
            self._devices,
            self._folder,
            sentinel.no_client,
            self._clock,
        )
        self._run(self._agent.store.recall(self._folder, self._kubelet))

    def _run(self, waiting: Any) -> Any:
        return self._loop.run_until_complete(waiting)

    # -- what the cluster does

    @rule(target=pods, card=INDEXES, mib=SIZES)
    def admit(self, card: int, mib: int) -> str:
        uid = make_uid()
        containers = [{"name": "main", "resources": {"limits": {"aliquot.io/gpu": "1"}}}]
        metadata = {"annotations": _annotations(card, mib)}
        self._shown[uid] = make_pod(uid, containers=containers, uid=uid, node="n1", metadata=metadata)
        self._sizes[uid] = mib
        ids = frozenset([uid])
        self._kubelet.granted[uid] = Grant(uid, "main", DIALECT.resource, ids, (cdi.promise(ids),))
        return uid

    @rule(uid=pods)
    def start(self, uid: str) -> None:
        with self._ignoring_refusals():
            self._run(self._agent.prepare(DIALECT.resource, frozenset([uid])))
            card = self._card_inside(uid)
            before = self.containers.setdefault(uid, (card, self._sizes[uid]))
            assert before[0] == card, "a container that starts again has the card that it had"

    @rule(uid=pods)
    def start_and_be_killed(self, uid: str) -> None:
        self._clock.kills = True
        with self._ignoring_refusals():
            self._run(self._agent.prepare(DIALECT.resource, frozenset([uid])))
        self._start_agent()

    @rule()
    def restart(self) -> None:
        self._start_agent()

    @rule()
    def tidy(self) -> None:
        self._run(self._agent.tidy(self._folder, self._kubelet))

    @rule(uid=pods)
    def report(self, uid: str) -> None:
        """kubelet tells the API server that the container runs."""
        if uid in self._shown and uid in self.containers:
            self._shown[uid] = runs(self._shown[uid])

    @rule(uid=pods, card=INDEXES, mib=SIZES)
    def rewrite(self, uid: str, card: int, mib: int) -> None:
        """A user rewrites both the record and the size of a pod that has its card."""
        if uid in self._shown and uid in self.containers:
            old = self._shown[uid]
            metadata = msgspec.structs.replace(old.metadata, annotations=_annotations(card, mib))
            self._shown[uid] = msgspec.structs.replace(old, metadata=metadata)

    @rule(uid=pods)
    def delete_by_force(self, uid: str) -> None:
        """Its containers go on."""
        self._shown.pop(uid, None)

    @rule(uid=pods)
    def fail(self, uid: str) -> None:
        """The control plane sets it to Failed. Its containers go on until kubelet has ended them."""
        if uid in self._shown:
            self._shown[uid] = ended(self._shown[uid])

    @rule(uid=consumes(pods))
    def end(self, uid: str) -> None:
        """Its containers end; kubelet forgets it later, if it is not deleted before."""
        self.containers.pop(uid, None)
        if uid in self._shown:
            self._shown[uid] = ended(self._shown[uid])
        else:
            del self._kubelet.granted[uid]

    # -- what must hold

    @invariant()
    def no_card_is_handed_out_twice(self) -> None:
        for gpu in CARDS.gpus:
            assert sum(mib for card, mib in self.containers.values() if card == gpu.index) <= gpu.mib

    @contextmanager
    def _ignoring_refusals(self) -> Iterator[None]:
        try:
            yield
        except (AliquotError, _KilledError):
            return

    def _card_inside(self, uid: str) -> int:
        (promised,) = self._kubelet.granted[uid].promised
        path = self._cdi / f"aliquot.io-gpu_{promised.partition('=')[2]}.json"
        (device,) = msgspec.json.decode(path.read_bytes())["devices"]
        (node,) = device["containerEdits"]["deviceNodes"]
        return next(gpu.index for gpu in CARDS.gpus if node["path"] == f"/dev/nvidia{gpu.minor}")


def _annotations(card: int, mib: int) -> dict[str, str]:
    gpu = CARDS.by_index[card]
    part = Slice(gpu.uuid, gpu.index, gpu.minor, 0, mib)
    return {PLACEMENT: write_placement(Placement("n1", "aliquot", {"main": (part,)})), "aliquot.io/memory": f"{mib}Mi"}


TestAgent = AgentMachine.TestCase

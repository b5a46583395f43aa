"""What this node has handed over. A record stays until kubelet has dropped the pod and its containers have ended,
whatever happens to its annotations and its phase.

The agent rebuilds the store from its own CDI specs or, without CDI, from its answers in kubelet's checkpoint. It adopts
what another device plugin has answered there. Users can write none of these. Pods that the checkpoint does not explain
count by their placements once a container has run. A mark proves nothing, because users can write it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

import structlog

from aliquot.agent import cdi
from aliquot.agent.answers import Answer
from aliquot.agent.cdi import CdiSpec, SpecFolder
from aliquot.agent.checkpoint import Grant
from aliquot.agent.devices import ContainerEdits, DeviceSource
from aliquot.agent.handover_record import HandOverRecord
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.off_loop import off_loop
from aliquot.dialects import Dialects, Holding, holding_among, holding_as_given, holding_of, registered_on
from aliquot.errors import AliquotError
from aliquot.model import Node, NodeGpus, Placement, Pod, charges_by_life

_log = structlog.get_logger()
_NO_PODS: Mapping[str, str] = MappingProxyType({})


class KeepsPods(Protocol):
    """Knows which pods kubelet has dropped: `kubelet_records.KubeletRecords`."""

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]: ...

    async def running(self, ended: Set[str]) -> Set[str]: ...


class KnowsGrants(Protocol):
    """Knows what kubelet allocated, and what was answered: `kubelet_records.KubeletRecords`."""

    async def grants(self) -> Sequence[Grant]: ...


class HandOverStore:
    def __init__(
        self, dialects: Dialects, cards: NodeCards, devices: DeviceSource, pods: NodePods, kubelet: KeepsPods
    ) -> None:
        self._dialects = dialects
        self._node_cards = cards
        self._registered: frozenset[str] | None = None
        self._devices = devices
        self._pods = pods
        self._kubelet = kubelet
        self._records: dict[str, HandOverRecord] = {}

    def see_node(self, node: Node) -> None:
        """Note which dialects' resources kubelet knows. Containers that request others hold nothing."""
        self._registered = registered_on(node, self._dialects)

    @property
    def _cards(self) -> NodeGpus:
        return replace(self._node_cards.current, registered=self._registered)

    # -- what was handed over

    def __contains__(self, uid: str) -> bool:
        return uid in self._records

    def put(self, record: HandOverRecord) -> None:
        self._records[record.uid] = record

    def of(self, uid: str) -> HandOverRecord | None:
        return self._records.get(uid)

    def others(self, uid: str) -> Iterator[HandOverRecord]:
        """What all other pods hold."""
        yield from (record for record in self._records.values() if record.uid != uid)
        for pod in self._pods.all():
            own = pod.metadata.uid
            if own != uid and own not in self._records and (holding := self._from_another_plugin(pod)) is not None:
                yield HandOverRecord(own, pod.key, holding)

    def _from_another_plugin(self, pod: Pod) -> Holding | None:
        """What a pod without a spec of ours holds, according to its annotations; None if no container has run."""
        try:
            speaking = self._dialects.spoken_by(pod)
            if pod.ended or not any(pod.has_run(dialect.guards) for dialect in speaking):
                return None
            return holding_of(pod, self._cards, self._dialects)
        except AliquotError as error:
            _log.error("cannot tell which cards a pod of this node holds", pod=pod.key, why=str(error))
            return None

    # -- forgetting

    def forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._records.pop(uid, None)

    async def forget_dropped(self, others: Mapping[str, str] = _NO_PODS) -> Set[str]:
        """Forget pods that have ended and have no running container, and pods that both the API server and kubelet have
        dropped.

        Returns their UIDs, including those of `others`, which has `namespace/name` by UID, empty if unknown. If kubelet
        or the runtime does not answer, none is forgotten.
        """
        known = {**others, **{uid: record.pod for uid, record in self._records.items()}}
        shown = {pod.metadata.uid: pod for pod in self._pods.all()}
        gone = {uid: name for uid, name in known.items() if uid not in shown}
        ended = {uid for uid, pod in shown.items() if uid in known and pod.ended}
        dropped: set[str] = set()
        try:
            dropped |= ended - await self._kubelet.running(ended) if ended else ended
            dropped |= gone.keys() - await self._kubelet.keeps(gone) if gone else gone.keys()
        except AliquotError as error:
            _log.warning("cannot tell which pods kubelet has dropped, counting all of them", why=str(error))
        self.forget(dropped)
        return dropped

    async def tidy(self, folder: SpecFolder, kubelet: KnowsGrants) -> None:
        """Remove the specs of pods that kubelet has dropped. An unreadable spec stays while kubelet's checkpoint lists
        its name."""
        specs = await off_loop(folder.read)
        grants = None if all(spec.pod_uid for spec in specs) else await _read(kubelet)
        promises = _promises(grants or ())
        owners = [spec.pod_uid or promises.get(spec.promised, "") for spec in specs]
        names = (spec.record.pod if spec.record else "" for spec in specs)
        dropped = await self.forget_dropped({uid: name for uid, name in zip(owners, names, strict=True) if uid})
        for spec, owner in zip(specs, owners, strict=True):
            is_nobodys = not owner and grants is not None
            if owner in dropped or is_nobodys:
                folder.remove(spec)

    # -- after a start

    async def recall(self, folder: SpecFolder, kubelet: KnowsGrants) -> None:
        """Read back what this agent handed over before it restarted, and adopt what another plugin has given to pods of
        this node. The informer cache of pods must be in sync."""
        specs, grants = await off_loop(folder.read), await _read(kubelet) or ()
        promises = _promises(grants)
        by_pod: dict[str, list[CdiSpec]] = {}
        for spec in (_checked(spec, promises) for spec in specs):
            if spec.trouble:
                _log.error("cannot trust a CDI spec", path=str(spec.path), why=spec.trouble)
            if spec.pod_uid:
                by_pod.setdefault(spec.pod_uid, []).append(spec)
        for uid, own in by_pod.items():
            self.put(self._recalled(uid, own).on(self._cards))
        for pod in self._pods.all():
            uid = pod.metadata.uid
            if uid not in self and (record := self.adopted(pod, grants)) is not None:
                self.put(record)  # also if it has ended: only the runtime knows whether its containers have
                if not pod.ended:
                    _log.info(
                        "adopted what another device plugin gave to a pod",
                        pod=pod.key,
                        cards=sorted(record.holding.charges),
                    )
        self._recall_answers(grants)

    def _recall_answers(self, grants: Iterable[Grant]) -> None:
        """An answer alone hands nothing over: PreStart must still check it, unless a container of the pod has run."""
        answers: dict[str, dict[str, Answer]] = {}
        for grant in grants:
            if grant.answer is not None and grant.answer.parts:
                answers.setdefault(grant.pod_uid, {})[grant.container] = grant.answer
        for uid, answered in answers.items():
            pod = self._pods.by_uid(uid)
            if uid not in self._records and (pod is None or pod.started):
                self.put(self._answered(uid, pod, answered).on(self._cards))

    def _answered(self, uid: str, pod: Pod | None, answered: Mapping[str, Answer]) -> HandOverRecord:
        (dialect, *_) = (answer.dialect for answer in answered.values())
        parts = {container: answer.parts for container, answer in answered.items()}
        placement = Placement(self._cards.node, dialect, parts)
        lives = {container.name: life for container, life in pod.containers()} if pod else {}
        return HandOverRecord(uid, pod.key if pod else "", Holding(placement, charges_by_life(placement, lives)))

    # -- taking over

    def adopted(self, pod: Pod, grants: Iterable[Grant]) -> HandOverRecord | None:
        """What another device plugin has given to a pod, according to kubelet's checkpoint; None if nothing."""
        theirs = [grant for grant in grants if grant.pod_uid == pod.metadata.uid and not grant.is_ours]
        given = {grant.container: frozenset[str]() for grant in theirs}
        for grant in theirs:
            given[grant.container] |= self.given_cards(grant)
        if not any(given.values()):
            return None
        return HandOverRecord(pod.metadata.uid, pod.key, holding_as_given(pod, self._cards, self._dialects, given))

    def given_cards(self, grant: Grant) -> frozenset[str]:
        """The cards in the answer of another device plugin."""
        return self._devices.visible_cards(grant.edits, self._cards.gpus, grant.promised)

    def variables_naming_cards(self, grant: Grant) -> frozenset[str]:
        """The variables that name a card in an answer, whoever's it is."""
        if grant.answer is not None:
            return grant.answer.naming_cards
        environment, gpus = grant.edits.environment.items(), self._cards.gpus
        each = ((name, ContainerEdits({name: value})) for name, value in environment)
        return frozenset(name for name, edits in each if self._devices.visible_cards(edits, gpus))

    def _recalled(self, uid: str, specs: list[CdiSpec]) -> HandOverRecord:
        found = [spec.record for spec in specs if spec.record is not None]
        if found and all(record == found[0] for record in found):
            return found[0]
        pod = self._pods.by_uid(uid)
        name = pod.key if pod else next((record.pod for record in found), "")
        if any(spec.trouble for spec in specs) or found:
            paths = ", ".join(str(spec.path) for spec in specs)
            why = f"its CDI specs do not say which cards it holds ({paths}); remove them once the pod has ended"
            return HandOverRecord(
                uid, name, holding_among(pod, self._cards, self._dialects, self._cards.by_uuid.keys(), why)
            )
        seen = (self._devices.visible_cards(ContainerEdits(spec.environment)) for spec in specs)
        uuids = frozenset().union(*seen)
        return HandOverRecord(uid, name, self._before_records(pod, uuids))

    def _before_records(self, pod: Pod | None, uuids: Set[str]) -> Holding:
        """What a pod holds whose specs name its cards and nothing more. The pod's own placement counts if it names
        them, too."""
        why = "the pod's record names different cards from the CDI spec that it started with"
        if pod is not None:
            try:
                holding = holding_of(pod, self._cards, self._dialects)
            except AliquotError as error:
                holding, why = None, str(error)
            if holding is not None and not holding.doubt and uuids <= holding.charges.keys():
                return holding
        return holding_among(pod, self._cards, self._dialects, uuids, why)


async def _read(kubelet: KnowsGrants) -> Sequence[Grant] | None:
    """None if kubelet's checkpoint cannot be read."""
    try:
        return await kubelet.grants()
    except AliquotError as error:
        _log.warning("cannot compare what is handed over with kubelet's checkpoint", why=str(error))
        return None


def _promises(grants: Iterable[Grant]) -> Mapping[str, str]:
    """The pod's UID for each CDI name that this agent promised."""
    return {name: grant.pod_uid for grant in grants for name in grant.promised if cdi.is_ours(name)}


def _checked(spec: CdiSpec, promises: Mapping[str, str]) -> CdiSpec:
    """The spec with the owner that kubelet's checkpoint names, if any: the file may be broken, or another pod's."""
    owner = promises.get(spec.promised, spec.pod_uid)
    if owner == spec.pod_uid:
        return spec
    trouble = spec.trouble or f"it names pod {spec.pod_uid}, but kubelet's checkpoint names pod {owner}"
    return CdiSpec(spec.path, owner, trouble=trouble)

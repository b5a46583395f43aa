"""What this node has handed over: kept until kubelet has dropped the pod, whatever becomes of the pod's annotations.

It is rebuilt from our own CDI specs, to which users cannot write. Pods that were served by another plug-in before us
count by their marks and records.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Protocol

import structlog

from aliquot.agent.cdi import Folder, Spec
from aliquot.agent.handed import Handed
from aliquot.agent.pods import Pods
from aliquot.dialects import Dialects, Holding, holding_among, holding_of, registered_on
from aliquot.errors import AliquotError
from aliquot.model import Node, NodeGpus, Pod

_log = structlog.get_logger()


class KeepsPods(Protocol):
    """Who knows which pods kubelet has dropped: `holders.Holders`."""

    async def keeps(self, gone: Mapping[str, str]) -> Set[str]: ...


class WasPromised(Protocol):
    """Who knows which CDI name was promised for which pod: `holders.Holders`."""

    def promises(self) -> Mapping[str, str]: ...


class Memory:
    def __init__(self, dialects: Dialects, cards: NodeGpus, pods: Pods, kubelet: KeepsPods) -> None:
        self._dialects = dialects
        self._cards = cards
        self._pods = pods
        self._kubelet = kubelet
        self._handed: dict[str, Handed] = {}

    def see_node(self, node: Node) -> None:
        """Which dialects' resources kubelet knows: containers that ask for others have got nothing."""
        self._cards = replace(self._cards, registered=registered_on(node, self._dialects))

    # -- what was handed over

    def __contains__(self, uid: str) -> bool:
        return uid in self._handed

    def put(self, handed: Handed) -> None:
        self._handed[handed.uid] = handed

    def of(self, uid: str) -> Handed | None:
        return self._handed.get(uid)

    def others(self, uid: str) -> Iterator[Handed]:
        """What all pods but one have got."""
        yield from (handed for handed in self._handed.values() if handed.uid != uid)
        for pod in self._pods.all():
            own = pod.metadata.uid
            if own != uid and own not in self._handed and (holding := self._by_marks(pod)) is not None:
                yield Handed(own, pod.key, holding)

    def _by_marks(self, pod: Pod) -> Holding | None:
        """What a pod has got of which we have no spec, by what is written on it."""
        try:
            speaking = self._dialects.spoken_by(pod)
            if pod.ended or not any(dialect.handed_over(pod) for dialect in speaking):
                return None
            return holding_of(pod, self._cards, self._dialects)
        except AliquotError as error:
            _log.error("a pod of this node cannot be counted", pod=pod.key, why=str(error))
            return None

    # -- forgetting

    def forget(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._handed.pop(uid, None)

    async def forget_dropped(self, others: Iterable[str] = ()) -> Set[str]:
        """Forget pods whose containers have ended, and those that neither the API server nor kubelet has any more.
        Returns their UIDs; of the `others`, too. While kubelet does not tell, it has them all."""
        known = {**dict.fromkeys(others, ""), **{uid: handed.pod for uid, handed in self._handed.items()}}
        shown = {pod.metadata.uid: pod for pod in self._pods.all()}
        gone = {uid: name for uid, name in known.items() if uid not in shown}
        dropped = {uid for uid, pod in shown.items() if uid in known and pod.ended}
        if gone:
            try:
                dropped |= gone.keys() - await self._kubelet.keeps(gone)
            except AliquotError as error:
                _log.warning("cannot tell which pods kubelet has dropped, counting them all", why=str(error))
        self.forget(dropped)
        return dropped

    async def tidy(self, folder: Folder, kubelet: WasPromised) -> None:
        """Remove the specs of pods that kubelet has dropped. What cannot be read stays while kubelet remembers that it
        was promised."""
        specs = folder.read()
        promises = None if all(spec.pod_uid for spec in specs) else self._promises(kubelet)
        owners = [spec.pod_uid or (promises or {}).get(spec.promised, "") for spec in specs]
        dropped = await self.forget_dropped(filter(None, owners))
        for spec, owner in zip(specs, owners, strict=True):
            is_nobodys = not owner and promises is not None
            if owner in dropped or is_nobodys:
                folder.remove(spec)

    # -- after a start

    def recall(self, folder: Folder, kubelet: WasPromised) -> None:
        """Read back what earlier lives of this agent have handed over. The mirror of pods must be in step."""
        specs = folder.read()
        promises = (self._promises(kubelet) if specs else None) or {}
        by_pod: dict[str, list[Spec]] = {}
        for spec in (_checked(spec, promises) for spec in specs):
            if spec.trouble:
                _log.error("a CDI spec of ours cannot be believed", path=str(spec.path), why=spec.trouble)
            if spec.pod_uid:
                by_pod.setdefault(spec.pod_uid, []).append(spec)
        for uid, own in by_pod.items():
            self.put(self._recalled(uid, own).on(self._cards))

    def _promises(self, kubelet: WasPromised) -> Mapping[str, str] | None:
        """None while kubelet does not tell."""
        try:
            return kubelet.promises()
        except AliquotError as error:
            _log.warning("cannot compare our CDI specs with kubelet's checkpoint", why=str(error))
            return None

    def _recalled(self, uid: str, specs: list[Spec]) -> Handed:
        found = [spec.handed for spec in specs if spec.handed is not None]
        if found and all(handed == found[0] for handed in found):
            return found[0]
        pod = self._pods.by_uid(uid)
        name = pod.key if pod else next((handed.pod for handed in found), "")
        if any(spec.trouble for spec in specs) or found:
            paths = ", ".join(str(spec.path) for spec in specs)
            why = f"what the pod has got cannot be read from its CDI specs ({paths}); remove them when it has ended"
            return Handed(uid, name, holding_among(pod, self._cards, self._dialects, self._cards.by_uuid.keys(), why))
        return Handed(uid, name, self._before_records(pod, frozenset().union(*(spec.uuids for spec in specs))))

    def _before_records(self, pod: Pod | None, uuids: Set[str]) -> Holding:
        """What a pod has got by specs that name its cards and no more. The pod's own record is believed if it names
        them, too."""
        why = "the pod's record names other cards than the CDI spec with which it was started"
        if pod is not None:
            try:
                holding = holding_of(pod, self._cards, self._dialects)
            except AliquotError as error:
                holding, why = None, str(error)
            if holding is not None and not holding.doubt and uuids <= holding.charges.keys():
                return holding
        return holding_among(pod, self._cards, self._dialects, uuids, why)


def _checked(spec: Spec, promises: Mapping[str, str]) -> Spec:
    """A spec with its owner by kubelet's word, where that is known: a file may be broken, or another pod's."""
    owner = promises.get(spec.promised, spec.pod_uid)
    if owner == spec.pod_uid:
        return spec
    trouble = spec.trouble or f"it is of pod {spec.pod_uid}, but was promised to kubelet for {owner}"
    return Spec(spec.path, owner, trouble=trouble)

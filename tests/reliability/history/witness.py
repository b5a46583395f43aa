"""An independent witness: sees every write of the API in order and adds up who has how much of which card.

It believes a record only for which cards it names; sizes come from the pod's spec and from the machines as they are. It
shares no code with Aliquot's ledger, engine and dialects, so that it cannot repeat a mistake of theirs.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from tests.reliability.history import demands
from tests.reliability.history.demands import Taken
from tests.reliability.history.figures import MOVED, OVERSOLD
from tests.reliability.history.machines import Card, Machine
from tests.reliability.history.story import Story

PLACEMENT = "aliquot.io/placement"
_GPU_MANAGERS = "tencent.com/predicate-gpu-idx-"
_TELLS = (PLACEMENT, "aliquot.io/epoch")

Pod = dict[str, Any]


class Witness:
    """`violated(what, text, names)` is called within the write that violates."""

    def __init__(
        self, machines: Mapping[str, Machine], story: Story, violated: Callable[[str, str, tuple[str, ...]], None]
    ) -> None:
        self._machines = machines
        self._story = story
        self._violated = violated
        self.pods: dict[str, Pod] = {}
        """Every pod that asks for GPUs, by UID, as it was written last."""
        self._holds: dict[str, dict[str, Taken]] = {}
        """By UID and uuid of the card."""
        self.taken: dict[str, dict[str, Taken]] = defaultdict(dict)
        """By uuid of the card and UID."""
        self._meant: dict[tuple[str, str], Card | None] = {}
        """Which card a record meant when it was written, by UID and the name that it has there."""
        self._oversold: set[str] = set()
        self._misplaced: set[str] = set()
        """What was told of each record: the same pod is written many times."""
        self._where = {card.uuid: (machine.name, card) for machine in machines.values() for card in machine.cards}

    def see(self, pod: Pod, *, is_gone: bool = False) -> None:
        """The pod as it was just written."""
        uid, before = pod["metadata"]["uid"], self.pods.get(pod["metadata"]["uid"])
        if not demands.parts(pod):
            return
        self._tell(before, pod, is_gone)
        if is_gone:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        holds = {} if is_gone or has_ended(pod) else self._of(pod)
        had = self._holds.pop(uid, {})
        if holds:
            self._holds[uid] = holds
        for uuid in had.keys() - holds.keys():
            del self.taken[uuid][uid]
        if had and holds and had.keys() != holds.keys() and self._is_settled(before):
            self._misplace(f"{name_of(pod)} had {sorted(had)} and has {sorted(holds)}", pod)
        for uuid, own in holds.items():
            self.taken[uuid][uid] = own
        for uuid in had.keys() | holds.keys():
            self._check(uuid, pod)

    def sum(self, uuid: str) -> Taken:
        total = Taken()
        for own in self.taken.get(uuid, {}).values():
            total = total.plus(own)
        return total

    def holders(self, uuid: str) -> list[Pod]:
        return [self.pods[uid] for uid in self.taken.get(uuid, {})]

    def holds(self, pod: Pod) -> Mapping[str, Taken]:
        return self._holds.get(pod["metadata"]["uid"], {})

    def on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if node_of(pod) == node]

    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if not node_of(pod) and not is_leaving(pod) and not has_ended(pod)]

    def bound(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if node_of(pod)]

    def fits(self, pod: Pod, machine: Machine) -> bool:
        """Whether a pod with one GPU container surely fits there; of others nothing is said."""
        asked = demands.parts(pod)
        if len(asked) != 1:
            return False
        (part,) = asked.values()
        return sum(demands.has_room(card, self.sum(card.uuid), part.of(card)) for card in machine.listed) >= part.cards

    def _of(self, pod: Pod) -> dict[str, Taken]:
        """What a bound pod has of each card, as far as anything says so."""
        machine = self._machines.get(node_of(pod))
        if machine is None:
            return {}
        written = self._written(pod, machine)
        # without an inventory a node counts as one of the original's plugin
        made_up = any(name.startswith(f"{machine.name}/") for names in written.values() for name in names)
        asked = demands.parts(pod, "gpushare" if made_up else machine.agent)
        mains: dict[str, list[Taken]] = defaultdict(list)
        inits: dict[str, list[Taken]] = defaultdict(list)
        for container, names in written.items():
            cards = [card for name in names if (card := self._card(pod, machine, name)) is not None]
            part = asked.get(container)
            if part is None or len({card.uuid for card in cards}) != part.cards:
                wanted = part.cards if part else 0
                text = f"{name_of(pod)}: container {container} asks for {wanted} cards and has {names}"
                self._misplace(text, pod)
                continue
            kind = inits if container in demands.inits(pod) else mains
            for card in cards:
                kind[card.uuid].append(part.of(card))
        uuids = mains.keys() | inits.keys()
        return {uuid: demands.peak(inits.get(uuid, []), mains.get(uuid, [])) for uuid in uuids}

    def _written(self, pod: Pod, machine: Machine) -> dict[str, list[str]]:
        """What its containers' cards are called in our record; where gpu-manager has the last word, in its own."""
        annotations = pod["metadata"].get("annotations") or {}
        if machine.agent == "nvidia":
            return {}  # kubelet alone knows which cards
        if machine.agent == "tencent":
            return self._written_by_gpu_manager(pod, machine, annotations) if has_started(pod) else {}
        if PLACEMENT not in annotations:
            return {}
        record = json.loads(annotations[PLACEMENT])
        if record["node"] != machine.name:
            self._misplace(f"{name_of(pod)} is on {machine.name}, its record says {record}", pod)
        return {name: [own["uuid"] for own in parts] for name, parts in record["containers"].items()}

    def _written_by_gpu_manager(
        self, pod: Pod, machine: Machine, annotations: Mapping[str, str]
    ) -> dict[str, list[str]]:
        by_place = {
            container["name"]: annotations.get(f"{_GPU_MANAGERS}{place}", "")
            for place, container in enumerate(pod["spec"]["containers"])
        }
        return {
            name: [f"{machine.name}/{number}" for number in numbers.split(",")]
            for name, numbers in by_place.items()
            if numbers
        }

    def _card(self, pod: Pod, machine: Machine, name: str) -> Card | None:
        """As it was when the record was written: indexes may change later."""
        return self._meant.setdefault((pod["metadata"]["uid"], name), machine.card(name))

    def _misplace(self, text: str, pod: Pod) -> None:
        if text not in self._misplaced:
            self._misplaced.add(text)
            self._violated(MOVED, text, names_of(pod))

    def _is_settled(self, before: Pod | None) -> bool:
        return before is not None and PLACEMENT in (before["metadata"].get("annotations") or {})

    def _check(self, uuid: str, pod: Pod) -> None:
        node, card = self._where[uuid]
        total = self.sum(uuid)
        if not demands.is_oversold(card, total):
            self._oversold.discard(uuid)
        elif uuid not in self._oversold:
            self._oversold.add(uuid)
            own = "; ".join(f"{name_of(p)} ({self.taken[uuid][p['metadata']['uid']]})" for p in self.holders(uuid))
            text = f"card {uuid} of {node} has 100 cores and {card.mib} MiB; sold are {total}: {own}"
            names = {name for holder in (*self.holders(uuid), pod) for name in names_of(holder)}
            self._violated(OVERSOLD, text, (*sorted(names), node))

    def _tell(self, before: Pod | None, pod: Pod, is_gone: bool) -> None:
        name, node = name_of(pod), node_of(pod)
        if is_gone:
            self._story.tell(f"{name} is gone", name)
        elif before is None:
            asked = {container: tuple(part) for container, part in demands.parts(pod).items()}
            self._story.tell(f"{name} is made{f' on {node}' if node else ''}, asks {asked}", name, node)
        else:
            news = [f"bound to {node}"] if node != node_of(before) else []
            news += [f"{key}={new}" for key in _TELLS if (new := _annotation(pod, key)) != _annotation(before, key)]
            if pod["status"].get("phase") != before["status"].get("phase"):
                news.append(f"{pod['status'].get('phase')} {pod['status'].get('reason', '')}")
            if is_leaving(pod) and not is_leaving(before):
                news.append("is to end")
            if news:
                self._story.tell(f"{name}: {', '.join(news)}", name, node)


def name_of(pod: Pod) -> str:
    meta = pod["metadata"]
    return f"{meta['namespace']}/{meta['name']}[{meta['uid'][:8]}]"


def names_of(pod: Pod) -> tuple[str, ...]:
    return name_of(pod), node_of(pod)


def node_of(pod: Pod) -> str:
    return str(pod["spec"].get("nodeName", ""))


def is_leaving(pod: Pod) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_placed(pod: Pod) -> bool:
    return bool(_annotation(pod, PLACEMENT))


def has_started(pod: Pod) -> bool:
    return any(
        "running" in s["state"] or "terminated" in s["state"] for s in pod["status"].get("containerStatuses", ())
    )


def has_ended(pod: Pod) -> bool:
    """Its containers have ended: the phase says so and no container is still on its way out."""
    status = pod["status"]
    running = any("running" in own.get("state", {}) for own in status.get("containerStatuses", ()))
    return status.get("phase") in ("Succeeded", "Failed") and not running


def _annotation(pod: Pod, key: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(key, ""))

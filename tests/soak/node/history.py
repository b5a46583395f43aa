"""Pods come and go on the nodes. Each is looked at until it has ended, and then deleted."""

import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.checker import Inside
from tests.mixed_checker import Named, crowded, findings
from tests.real.by_hand import Asking
from tests.rig import Rig
from tests.soak.node.looks import Looks, alive
from tests.soak.node.pods import LABEL, Planned, plan

AT_ONCE = 24
MOST_PER_ROUND = 4
"""A node whose agent is dead fails pods at once: it shall not swallow them all."""
EARLY_SECONDS = (2.0, 8.0)
"""After so long, a pod that is not to end by itself is deleted."""
PATIENCE = 60.0
"""A pod that has waited so long for a place gets one: no others come until it is bound. Small pods would keep large
ones out for ever."""
LONGEST_WAIT = 300.0
LONGEST_LIFE = 240.0
"""From its Binding until it has ended, and from its deletion until it is gone."""
_PODS = "/api/v1/namespaces/default/pods"
_ENDED = ("Succeeded", "Failed")
_WHY = {
    "connection refused": ", agent dead",
    "no such file": ", agent dead",
    "no healthy devices": ", agent not registered",
    "number of devices unavailable": ", ids not free",
}
"""How the messages of UnexpectedAdmissionError differ."""


@dataclass
class _Life:
    planned: Planned
    created: float
    delete_at: float
    bound: float = 0.0
    deleted: float = 0.0
    is_late: bool = False
    """It took too long, and that was told."""


class History:
    def __init__(self, rig: Rig, ask: Asking, count: int, chance: random.Random) -> None:
        self._rig = rig
        self._ask = ask
        self._count = count
        self._chance = chance
        self._created = 0
        self._lives: dict[str, _Life] = {}
        self._looks = [Looks(node) for node in rig.nodes]
        self._unseen: set[Named] = set()
        self.seen = 0
        """Containers that were looked into."""
        self.most_alive = 0
        """Containers that lived at the same time."""
        self.ends: Counter[str] = Counter()
        """How pods ended."""
        self.placed: Counter[str] = Counter()
        """In which dialect, and on which node."""
        self.words: dict[str, str] = {}
        """What was said about the first pod that ended in each way."""
        self.restarts = 0
        """Containers that saw their cards more than once."""
        self.wrong: dict[str, None] = {}
        """Each sentence once, in the order in which they were found."""

    @property
    def ended(self) -> int:
        return self.ends.total()

    @property
    def not_seen(self) -> int:
        """Containers that ended well, and of which nobody knows what they saw."""
        return len(self._unseen)

    def fill(self) -> None:
        """Create pods until as many wait or run as there should be."""
        now = time.monotonic()
        if any(not life.bound and now - life.created > PATIENCE for life in self._lives.values()):
            return
        for _ in range(min(AT_ONCE - len(self._lives), self._count - self._created, MOST_PER_ROUND)):
            planned = plan(self._created, self._chance)
            self._ask("POST", _PODS, planned.pod)
            delete_at = now + self._chance.uniform(*EARLY_SECONDS) if planned.is_deleted_early else 0.0
            self._lives[planned.name] = _Life(planned, now, delete_at)
            self._created += 1

    def look(self) -> None:
        living = alive(self._rig.folder.name)
        self.most_alive = max(self.most_alive, len(living))
        selector = ",".join(f"{key}%3D{value}" for key, value in LABEL.items())
        pods = self._ask("GET", f"{_PODS}?labelSelector={selector}")["items"]
        nodes = self._ask("GET", "/api/v1/nodes")["items"]
        inside: dict[Named, list[Inside]] = {}
        for looks in self._looks:
            looks.read()
            inside |= looks.inside
        self.seen = len(inside)
        self.restarts = sum(len(looks) > 1 for looks in inside.values())
        self.wrong |= dict.fromkeys([*findings(pods, nodes, inside), *crowded(pods, nodes, living)])
        now = time.monotonic()
        for pod in pods:
            self._follow(pod, now)
        for name in self._lives.keys() - {pod["metadata"]["name"] for pod in pods}:
            self._gone(name)
        for pod in pods:
            if pod["status"]["phase"] == "Succeeded":
                own = {(pod["metadata"]["name"], each["name"]) for each in pod["spec"]["containers"]}
                self._unseen |= own
        self._unseen -= inside.keys()

    def _follow(self, pod: dict[str, Any], now: float) -> None:
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        life = self._lives[name]
        if pod["spec"].get("nodeName") and not life.bound:
            life.bound = now
            self.placed[f"{_dialect(pod)} on {pod['spec']['nodeName']}"] += 1
        if not life.deleted and (phase in _ENDED or life.is_late or 0.0 < life.delete_at <= now):
            self._ask("DELETE", f"{_PODS}/{name}")
            life.deleted = now
            how, words = _how_it_ended(pod)
            self.ends[how] += 1
            self.words.setdefault(how, words)
        if not life.is_late and (what := _too_late(life, now)):
            life.is_late = True
            self.wrong[f"{name} {what}: {pod['spec']} {pod['status']}"] = None

    def _gone(self, name: str) -> None:
        life = self._lives.pop(name)
        if not life.deleted:
            self.wrong[f"{name} is gone, and nobody deleted it"] = None


def _too_late(life: _Life, now: float) -> str:
    if life.deleted:
        return "was deleted and is not gone" if now - life.deleted > LONGEST_LIFE else ""
    if life.bound:
        return "is bound and has not ended" if now - life.bound > LONGEST_LIFE else ""
    return "is not bound" if now - life.created > LONGEST_WAIT else ""


def _dialect(pod: dict[str, Any]) -> str:
    return str(json.loads(pod["metadata"]["annotations"].get("aliquot.io/placement", "{}")).get("dialect"))


def _how_it_ended(pod: dict[str, Any]) -> tuple[str, str]:
    """In a word or two, and in those of kubelet and the container runtime."""
    status = pod["status"]
    if status["phase"] != "Failed":
        return "ended well" if status["phase"] == "Succeeded" else f"deleted while {status['phase']}", ""
    if "reason" in status:
        why = next((why for phrase, why in _WHY.items() if phrase in status["message"]), "")
        return f"failed: {status['reason']}{why}", status["message"]
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    ends = [each["state"].get("terminated", {}) for each in containers]
    failed = [end for end in ends if end.get("exitCode")]
    how = sorted({f"{end['reason']} {end['exitCode']}" for end in failed})
    return f"failed: {', '.join(how)}", "; ".join(end.get("message", "") for end in failed)

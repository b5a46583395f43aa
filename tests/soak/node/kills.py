"""Agents, kubelets and container runtimes of all nodes are killed at random, and start again a moment later."""

import math
import random
import time
from collections import Counter

from tests.rig import Process, Rig
from tests.rig.aliquot import Aliquot

BETWEEN_SECONDS = (4.0, 14.0)
DEAD_SECONDS = (0.0, 3.0)
NO_RUNTIME = "the container runtime at"
"""An agent that starts without a container runtime says so and ends. Its DaemonSet starts it again."""


class Kills:
    def __init__(self, rig: Rig, aliquot: Aliquot, chance: random.Random) -> None:
        self._chance = chance
        self._victims = {
            (kind, node.name): process
            for node, agent in zip(rig.nodes, aliquot.agents, strict=True)
            for kind, process in (
                ("agent", agent.process),
                ("kubelet", node.kubelet.process),
                ("containerd", node.containerd.process),
            )
        }
        self._dead: list[tuple[float, Process]] = []
        self._next = time.monotonic() + chance.uniform(*BETWEEN_SECONDS)
        self.count: Counter[str] = Counter()
        self.agents_without_runtime = 0

    def step(self) -> list[str]:
        """Kill one and start others again, as it is time. Returns what has ended by itself."""
        now = time.monotonic()
        dead = [process for _, process in self._dead]
        ended = []
        for (kind, node), process in self._victims.items():
            if process.running or process in dead:
                continue
            self._dead.append((now + 1.0, process))
            if kind == "agent" and NO_RUNTIME in process.tail(1):
                self.agents_without_runtime += 1
            else:
                ended.append(f"{kind} of {node} has ended by itself ({process.returncode}):\n{process.tail()}")
        for again, process in [each for each in self._dead if each[0] <= now]:
            process.start()
            self._dead.remove((again, process))
        if now >= self._next:
            (kind, node), process = self._chance.choice(list(self._victims.items()))
            if process.running:
                process.kill()
                self._dead.append((now + self._chance.uniform(*DEAD_SECONDS), process))
                self.count[kind] += 1
            self._next = now + self._chance.uniform(*BETWEEN_SECONDS)
        return ended

    def finish(self) -> None:
        """Kill nobody any more; what is dead still starts again."""
        self._next = math.inf

"""Pods of mixed dialects start and end on a real node while agent, kubelet and container runtime are killed at random.

It needs what `make e2e` needs. ALIQUOT_SOAK_PODS says how many pods there are.
"""

import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.checker import Inside
from tests.e2e import pods
from tests.mixed_checker import findings
from tests.rig import Rig, missing
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

PODS = int(os.environ.get("ALIQUOT_SOAK_PODS", "1000"))
SEED = int(os.environ.get("ALIQUOT_SOAK_SEED", "1"))
AT_ONCE = 16
SECONDS_BETWEEN_KILLS = (4.0, 12.0)
LIVES = (1, 12)
DIALECTS = ("gpushare", "tencent", "elastic", "keti", "nvidia", "aliquot")
KINDS: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
    ({"aliyun.com/gpu-mem": "2"}, {}),
    ({"aliyun.com/gpu-count": "1"}, {}),
    ({"tencent.com/vcuda-core": "10", "tencent.com/vcuda-memory": "6"}, {}),
    ({"elastic-gpu/gpu-percent": "15"}, {}),
    ({"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "1000"}, {}),
    ({"elasticgpu.com/gpu-core": "10", "elasticgpu.com/gpu-memory": "1000"}, {}),
    ({"nano-gpu/gpu-percent": "15"}, {}),
    ({"nano-gpu.io/gpu-core": "10", "nano-gpu.io/gpu-memory": "1"}, {}),
    ({"keti.com/mpsgpu": "1"}, {}),
    ({"nvidia.com/gpu": "1"}, {}),
    ({"aliquot.io/gpu": "1"}, {"aliquot.io/cores": "15", "aliquot.io/memory": "1500Mi"}),
    ({"aliquot.io/gpu": "2"}, {"aliquot.io/cores": "5", "aliquot.io/memory": "500Mi"}),
]


@pytest.fixture
def node() -> Iterator[tuple[Rig, Aliquot]]:
    if lacking := missing():
        pytest.skip("the rig cannot start here: " + "; ".join(lacking))
    with Rig.up(progress=lambda text: print(f"[rig] {text}", flush=True)) as rig:
        aliquot = Aliquot(rig)
        aliquot.start()
        aliquot.serve(DIALECTS, "native")
        yield rig, aliquot


def test_nobody_is_on_a_wrong_card_and_nothing_is_left(node: tuple[Rig, Aliquot]) -> None:
    rig, aliquot = node
    chance = random.Random(SEED)
    history = _History(rig)
    kills = dict.fromkeys(("agent", "kubelet", "containerd"), 0)
    next_kill = time.monotonic() + chance.uniform(*SECONDS_BETWEEN_KILLS)
    while history.ended < PODS:
        history.fill(chance)
        history.look()
        assert history.wrong == []
        if time.monotonic() > next_kill:
            victim = chance.choice(list(kills))
            kills[victim] += 1
            _kill(rig, aliquot, victim)
            next_kill = time.monotonic() + chance.uniform(*SECONDS_BETWEEN_KILLS)
        print(f"\r{history.ended} of {PODS} pods ended, {history.seen} looked into, kills {kills}", end="", flush=True)
    print()
    assert history.seen >= PODS // 2, "most containers were looked into"
    wait_for("every spec to be removed", lambda: not list(rig.cdi_folder.iterdir()), seconds=60)
    pods.create(rig, [pods.pod(f"last-{card}", units=15) for card in range(len(rig.nvml.gpus))])
    pods.wait_running(rig, [f"last-{card}" for card in range(len(rig.nvml.gpus))])


def _kill(rig: Rig, aliquot: Aliquot, victim: str) -> None:
    process = {"agent": aliquot.agent, "kubelet": rig.kubelet.process, "containerd": rig.containerd.process}[victim]
    process.kill()
    process.start()


class _History:
    """Pods come and go. Each is looked at until it has ended, and then deleted."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._created = 0
        self._inside: dict[str, Inside] = {}
        self._ended: set[str] = set()
        self.wrong: list[str] = []

    @property
    def ended(self) -> int:
        return len(self._ended)

    @property
    def seen(self) -> int:
        return len(self._inside)

    def fill(self, chance: random.Random) -> None:
        """Create pods until as many wait or run as there should be."""
        missing_pods = min(AT_ONCE, PODS - self.ended) - (self._created - self.ended)
        if missing_pods > 0:
            pods.create(self._rig, [self._pod(chance) for _ in range(missing_pods)])

    def _pod(self, chance: random.Random) -> dict[str, Any]:
        limits, wishes = chance.choice(KINDS)
        seconds = chance.randint(*LIVES)
        made = pods.pod(f"soak-{self._created}", limits=limits, restartPolicy="Never")
        made["metadata"] |= {"labels": {"app": "soak"}, "annotations": dict(wishes)}
        made["spec"]["containers"][0]["command"] = ["sh", "-c", f"{pods.LOOK}; echo {pods.LOOKED}; sleep {seconds}"]
        self._created += 1
        return made

    def look(self) -> None:
        listed = self._listed("pods", "--selector=app=soak")
        for pod in listed:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            if phase in ("Running", "Succeeded") and name not in self._inside:  # kubelet may be dead just now
                told = self._rig.kubectl("logs", name, check=False)
                if pods.LOOKED in told:
                    self._inside[name] = pods.read_look(told)
        self.wrong += findings(listed, self._listed("nodes"), self._inside)
        ended = [pod["metadata"]["name"] for pod in listed if pod["status"].get("phase") in ("Succeeded", "Failed")]
        if ended:
            self._rig.kubectl("delete", "pods", *ended, "--wait=false", "--grace-period=1", "--ignore-not-found")
            self._ended.update(ended)

    def _listed(self, *what: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self._rig.kubectl("get", *what, "--output=json"))["items"]
        return items

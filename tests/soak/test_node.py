"""Pods of mixed dialects start and end on two real nodes while agents, kubelets and container runtimes are killed at
random.

It needs what `make e2e` needs. ALIQUOT_SOAK_PODS says how many pods there are.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from aliquot.kube import from_kubeconfig
from tests.e2e import pods
from tests.real.by_hand import Asking
from tests.real.tunnel import tunnel
from tests.rig import Gpu, NodeSpec, Rig, missing
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import answers, wait_for
from tests.soak.node.history import History
from tests.soak.node.kills import Kills

PODS = int(os.environ.get("ALIQUOT_SOAK_PODS", "1000"))
SEED = int(os.environ.get("ALIQUOT_SOAK_SEED", "1"))
ROUND_SECONDS = 0.5
TOLD_SECONDS = 20.0
MOST_FINDINGS = 10
"""It goes on after the first ones: the next may tell more."""
MOST_DIALECTS = ("gpushare", "tencent", "elastic", "keti", "aliquot")
MINORS = (1, 0, 3, 2)
UNITS = 8
"""Of gpushare, in a card. kubelet takes long over cards with more memory: Elastic GPU has an id per MiB."""


def _node(name: str, number: int, dialects: tuple[str, ...]) -> NodeSpec:
    """hami and nvidia share a resource: a node serves one of them."""
    labels = {f"dialect.aliquot.io/{dialect}": "true" for dialect in dialects}
    uuids = {minor: f"GPU-{number:08x}-0000-4000-8000-{minor:012x}" for minor in MINORS}
    return NodeSpec(name, labels, [Gpu(uuid, minor, mib=UNITS * 1024) for minor, uuid in uuids.items()])


FIRST = _node("first", 1, ("nvidia", *MOST_DIALECTS))
SECOND = _node("second", 2, ("hami", *MOST_DIALECTS))


@pytest.fixture
def cluster() -> Iterator[tuple[Rig, Aliquot]]:
    if lacking := missing():
        pytest.skip("the rig cannot start here: " + "; ".join(lacking))
    with Rig.up(
        progress=lambda text: print(f"[rig] {text}", flush=True),
        node_name=FIRST.name,
        labels=FIRST.labels,
        gpus=FIRST.gpus,
        more_nodes=[SECOND],
    ) as rig:
        aliquot = Aliquot(rig)
        aliquot.start_server()
        rig.restart_scheduler(aliquot.scheduler_config("native"))
        for agent in aliquot.agents:
            agent.start_by_labels()
        yield rig, aliquot


def test_nobody_is_on_a_wrong_card_and_nothing_is_left(cluster: tuple[Rig, Aliquot]) -> None:
    rig, aliquot = cluster
    chance, started, told = random.Random(SEED), time.monotonic(), 0.0
    kills = Kills(rig, aliquot, chance)
    with tunnel(from_kubeconfig(rig.admin_kubeconfig)) as url, closing(Asking(url)) as ask:
        history = History(rig, ask, PODS, chance)
        while history.ended < PODS:
            history.fill()
            history.look()
            history.wrong |= dict.fromkeys(kills.step())
            if time.monotonic() > told + TOLD_SECONDS or history.ended == PODS:
                told = time.monotonic()
                _tell(history, kills, told - started)
            assert len(history.wrong) <= MOST_FINDINGS, list(history.wrong)
            time.sleep(ROUND_SECONDS)
        kills.finish()
        print("placed:", dict(sorted(history.placed.items())))
        print(*(f"{how}: {words}" for how, words in history.words.items() if words), sep="\n")
    assert list(history.wrong) == []
    assert history.not_seen <= PODS // 100, "what containers see was written down"
    urls = [f"{agent.url}/readyz" for agent in aliquot.agents]
    wait_for("both agents to be ready", lambda: not kills.step() and all(map(answers, urls)), seconds=60)
    wait_for("every pod to be gone", lambda: not rig.kubectl("get", "pods", "--output=name"), seconds=120, every=1)
    for node in rig.nodes:
        folder = node.containerd.cdi_folder
        wait_for(f"every spec of {node.name} to be removed", partial(_is_empty, folder), seconds=60)
    _fill_every_card(rig)


def _tell(history: History, kills: Kills, seconds: float) -> None:
    told = (
        f"{seconds / 60:.1f} min: {history.ended} of {PODS} pods ended; {history.seen} containers looked into, "
        f"{history.restarts} of them more than once, {history.not_seen} not; at most {history.most_alive} at once; "
        f"kills {kills.count.total()} {dict(kills.count)}, {kills.agents_without_runtime} agents ended without a "
        f"runtime; {dict(history.ends.most_common())}"
    )
    print(told, *history.wrong, sep="\n", flush=True)


def _is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


def _fill_every_card(rig: Rig) -> None:
    """A record that is left in a server or an agent would keep a pod from running."""
    names = []
    for node in rig.nodes:
        own = [f"last-{node.name}-{card}" for card in range(len(node.nvml.gpus))]
        selector = {"kubernetes.io/hostname": node.name}
        pods.create(rig, [pods.pod(name, units=UNITS, nodeSelector=selector) for name in own])
        names += own
    pods.wait_running(rig, names)

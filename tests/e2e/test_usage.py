"""Who uses a shared card: real processes in real cgroups of real pods, which the driver knows by their PIDs only."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot.model.load import LOAD, PodLoad, read_load
from tests.e2e import pods
from tests.integration.monitoring.prometheus import Prometheus, scraping
from tests.rig import GpuProcess, Rig, debian
from tests.rig.aliquot import Aliquot
from tests.rig.images import BUSYBOX
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

MIB = 2**20
_NAPS = {("alone", "main"): 31001, ("pair", "left"): 31002, ("pair", "right"): 31003}
"""How long the process of each container sleeps, by which a test finds it."""
Containers = Mapping[tuple[str, str], float]


class Usage:
    """A node with two pods and three containers on one card."""

    def __init__(self, rig: Rig, aliquot: Aliquot) -> None:
        self.rig = rig
        self.agent_url = aliquot.agent_url
        pods.create(rig, [_pod("alone"), _pod("pair")])
        pods.wait_running(rig, ["alone", "pair"])
        self.uids = {name: pods.get(rig, name)["metadata"]["uid"] for name in ("alone", "pair")}
        (self.uuid,) = {uuid for name in self.uids for uuid in self._cards_of(name)}
        self.card = next(place for place, gpu in enumerate(rig.nvml.gpus) if gpu.uuid == self.uuid)
        self.pids = {container: _pid_of_sleep(seconds) for container, seconds in _NAPS.items()}

    def _cards_of(self, name: str) -> set[str]:
        record = json.loads(pods.get(self.rig, name)["metadata"]["annotations"]["aliquot.io/placement"])
        return {part["uuid"] for parts in record["containers"].values() for part in parts}

    def tell(self, mib: Containers, percent: Containers, **more: int) -> None:
        """Let the driver list the process of each container, and one of the machine, with what they use."""
        listed = [
            GpuProcess(self.card, pid, int(mib[container]), int(percent[container]), **more)
            for container, pid in self.pids.items()
        ]
        self.rig.nvml.replace_processes([*listed, GpuProcess(self.card, os.getpid(), 7, 5)])

    def shown(self, name: str, **labels: str) -> Containers:
        """The values of a metric by pod and container, of this card and with these labels."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{self.agent_url}/metrics", timeout=5) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        wanted = {"uuid": self.uuid, "namespace": "default", **labels}
        return {
            (sample.labels["pod"], sample.labels["container"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and wanted.items() <= sample.labels.items()
        }

    async def scraped(self, prometheus: Prometheus, name: str) -> Containers:
        """The same as Prometheus has it."""
        found = await prometheus.query(f'{name}{{uuid="{self.uuid}",namespace="default"}}')
        return {(one["metric"]["pod"], one["metric"]["container"]): float(one["value"][1]) for one in found}

    def load(self) -> Mapping[str, PodLoad]:
        """What the node's Lease tells of pods on this card, by UID."""
        listed = ("get", "lease", self.rig.node_name, "--namespace=aliquot-nodes", "--output=json")
        lease = json.loads(self.rig.kubectl(*listed))
        record = read_load(lease["metadata"]["annotations"][LOAD])
        return {uid: cards[self.uuid] for uid, cards in record.pods.items() if self.uuid in cards}


def _pod(name: str) -> dict[str, Any]:
    containers = [
        {
            "name": container,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", f"trap exit TERM; sleep {seconds} & wait"],
            "resources": {"limits": {pods.GPU_MEM: "2"}},
        }
        for (owner, container), seconds in _NAPS.items()
        if owner == name
    ]
    return pods.pod(name, containers=containers)


def _pid_of_sleep(seconds: int) -> int:
    """The PID on this machine of the one process that sleeps so long."""
    wanted = f"sleep\0{seconds}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended
    (pid,) = found
    return pid


@pytest.fixture
def usage(rig: Rig, aliquot: Aliquot) -> Iterator[Usage]:
    yield Usage(rig, aliquot)
    rig.nvml.replace_processes([])
    rig.nvml.change(0, samples=1, util=0, joules=-1)
    rig.nvml.change(1, samples=1, util=0, joules=-1)


async def test_containers_on_one_card_are_told_apart_and_vanish_with_their_pod(
    usage: Usage, progress: Callable[[str], None], tmp_path: Path
) -> None:
    """By the agent's own page, by a real Prometheus that scrapes it, and by the node's Lease."""
    memory, cores = "aliquot_container_memory_used_bytes", "aliquot_container_cores_busy_ratio"
    energy = "aliquot_container_energy_joules_total"
    mib = dict(zip(usage.pids, (100, 200, 400), strict=True))
    usage.rig.nvml.change(usage.card, joules=1000)
    usage.tell(mib, dict.fromkeys(usage.pids, 28), mps=1)  # 3 x 28 % of all clients of MPS, split by their memory
    split = {container: pytest.approx(0.84 * amount / 700) for container, amount in mib.items()}
    wait_for("estimates under MPS", lambda: usage.shown(cores, method="estimated") == split, seconds=30, every=0.3)
    assert usage.shown(cores, method="measured") == {}

    percent = dict(zip(usage.pids, (10, 20, 30), strict=True))
    usage.tell(mib, percent)
    usage.rig.nvml.change(usage.card, joules=1100)  # afterwards: an agent reads it before the processes
    ratios = {container: amount / 100 for container, amount in percent.items()}
    wait_for("each container's cores", lambda: usage.shown(cores, method="measured") == ratios, seconds=30, every=0.3)
    assert usage.shown(cores, method="estimated") == {}
    told = {container: float(amount * MIB) for container, amount in mib.items()}
    assert usage.shown(memory) == told, "and nobody has what the process of the machine uses"
    joules = {container: pytest.approx(100 * ratio) for container, ratio in ratios.items()}
    wait_for("each container's energy", lambda: usage.shown(energy) == joules, seconds=30, every=0.3)

    programs, target = debian.prometheus(progress), urlsplit(usage.agent_url).netloc
    async with scraping(programs, tmp_path, {"aliquot-agent": target}) as prometheus:
        scraped = {name: await usage.scraped(prometheus, name) for name in (memory, cores, energy)}
        assert scraped == {memory: told, cores: ratios, energy: joules}
        usage.rig.kubectl("delete", "pod", "alone", "--grace-period=1")
        left = {container: value for container, value in told.items() if container[0] == "pair"}
        assert usage.shown(memory) == left, "the driver still lists its process"
        prometheus.follow()
        async with asyncio.timeout(30):
            while [(await usage.scraped(prometheus, name)).keys() for name in scraped] != [left.keys()] * 3:
                await asyncio.sleep(0.1)
    pair = {usage.uids["pair"]: PodLoad(600 * MIB, 0.5)}
    wait_for("the Lease to tell the load of the pod that is left", lambda: usage.load() == pair, seconds=30, every=0.3)


_WITHOUT_HOST_PID = """
import json, sys, time
from pathlib import Path
from aliquot.agent.devices import GpuProcess, Processes
from aliquot.agent.usage import HostProcesses

listed = [Processes(time.clock_gettime(time.CLOCK_BOOTTIME), (GpuProcess(int(sys.argv[2])),))]
own, hosts = (HostProcesses(Path(proc)).of(listed) for proc in ("/proc", sys.argv[1]))
print(json.dumps([own, {pid: owner.name for pid, owner in hosts.items()}]))
"""


def test_without_host_pid_the_hosts_own_proc_shows_its_processes(tmp_path: Path) -> None:
    """As in a pod that has the host's files mounted and a PID namespace of its own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        wait_for("the process to have its name", lambda: _comm(process.pid) == "cat", seconds=5)
        mounts = 'mount --bind /proc "$0" && mount -t proc proc /proc && exec "$@"'
        asking = [sys.executable, "-c", _WITHOUT_HOST_PID, str(tmp_path), str(process.pid)]
        command = ["unshare", "--pid", "--fork", "--mount", "sh", "-c", mounts, str(tmp_path), *asking]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        process.kill()
    assert json.loads(answer) == [None, {str(process.pid): "cat"}]


def _comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()

"""A node as HAMi's users have it: HAMi's own examples run on its cards, and pods on the instances of a MIG card."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import driver_view, pods
from tests.e2e.driver_view import Seen
from tests.hami_examples import CARD, CORES, EXAMPLES, GPU, MEMORY, MIB, PERCENT, REFUSED
from tests.rig import Rig, devices
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.cuda import Driver
from tests.rig.cuda.toolkit_spec import Card
from tests.rig.nvml import Gpu, MigInstance, default_gpus
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

UUIDS = ["GPU-n2-0", *(f"GPU-n3-{number}" for number in range(17))]
"""Enough for all examples at once, among them those that examples name."""
FIRST_MINOR = 10
CUT = Gpu("GPU-cut", FIRST_MINOR + len(UUIDS), MIB, CARD, mig=1)
PROFILE = "3g.20gb"
INSTANCES = [MigInstance(len(UUIDS), f"MIG-{gi}", gi, mib=19968, profile=PROFILE) for gi in (1, 2)]
PROMPT = [MigInstance(len(UUIDS), "MIG-9", 9, mib=4864, profile="1g.5gb")]
NAMED = "nvidia.com/use-gpuuuid"
LABELS = ("dialect.aliquot.io/hami", "dialect.aliquot.io/aliquot")


@dataclass
class Node:
    """A node with a MIG card, and with the toolkit's spec of its cards and instances."""

    rig: Rig
    driver: Driver
    capabilities: devices.Capabilities
    capability_numbers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of the device nodes that open an instance, by UUID."""
    instances: dict[str, Card] = field(default_factory=dict)

    def sees(self, uuids: list[str], seen: Seen) -> None:
        """The container sees exactly what there is of these cards or of this instance, and their names."""
        if instance := self.instances.get(uuids[0]):
            expected = driver_view.of_instance(self.driver, instance, CUT)
        else:
            gpus = {gpu.uuid: gpu for gpu in self.rig.nvml.gpus}
            expected = driver_view.of_toolkit(self.driver, [gpus[uuid] for uuid in uuids])
        assert seen.driver == expected
        assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids)

    def cut(self, instances: list[MigInstance]) -> Path:
        """Make instances of the MIG card, beside those that there are. Returns the file of the new spec."""
        for each in instances:
            nodes = self.capabilities.add(CUT.minor, each.gi, each.ci)
            self.capability_numbers[each.uuid] = [*nodes.values()]
            name = f"{len(UUIDS)}:{len(self.instances)}"
            self.instances[each.uuid] = Card(name, each.uuid, [f"/dev/nvidia{CUT.minor}", *nodes])
        return self.driver.write_spec(instances=[*self.instances.values()])


@pytest.fixture(scope="module")
def node(rig: Rig, started: Aliquot, driver: Driver) -> Iterator[Node]:
    """The rig's node with other cards."""
    pods.delete_all(rig)
    started.agent.stop()
    cards = [Gpu(uuid, FIRST_MINOR + place, MIB, CARD) for place, uuid in enumerate(UUIDS)]
    made = [devices.add_card(rig.dev_folder, card.minor) for card in (*cards, CUT)]
    capabilities = devices.Capabilities(rig.dev_folder, rig.node.proc_driver)
    with_other_cards = Node(rig, driver, capabilities)
    rig.nvml.replace_gpus([*cards, CUT])
    rig.nvml.replace_instances(INSTANCES)
    spec = with_other_cards.cut(INSTANCES)
    rig.kubectl("label", "node", rig.node_name, *(f"{label}=true" for label in LABELS))
    started.serve(("hami", "aliquot"), "native")
    yield with_other_cards
    pods.delete_all(rig)
    started.agent.stop()
    rig.kubectl("label", "node", rig.node_name, *(f"{label}-" for label in LABELS))
    rig.nvml.replace_instances([])
    rig.nvml.replace_gpus(default_gpus())
    capabilities.remove()
    spec.unlink()
    for path in made:
        path.unlink()
    started.serve(GPUSHARE, "gpushare")


@pytest.fixture(autouse=True)
def no_pods(node: Node) -> Iterator[None]:
    yield
    pods.delete_all(node.rig)


def placed(pod: Mapping[str, Any]) -> list[str]:
    """The UUIDs of the pod's cards."""
    ((parts),) = json.loads(pod["metadata"]["annotations"]["aliquot.io/placement"])["containers"].values()
    return [part["uuid"] for part in parts]


def example(name: str, limits: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """The pod of an example, with an image of the rig and a command that looks around and waits."""
    made = driver_view.with_cuda(pods.pod(name, limits=limits))
    made["metadata"] |= {"labels": {"from": "hami"}, "annotations": dict(annotations)}
    made["spec"]["containers"][0]["command"] = ["sh", "-c", f"{driver_view.LOOK}; trap exit TERM; sleep 3600 & wait"]
    return made


def mib_of(limits: Mapping[str, str]) -> int:
    """Of each card."""
    return int(limits.get(MEMORY, MIB * int(limits.get(PERCENT, "100")) // 100))


def variables(limits: Mapping[str, str]) -> dict[str, str]:
    """What HAMi tells a container with parts of cards."""
    limited = range(int(limits[GPU])) if limits.keys() & {MEMORY, PERCENT} else ()
    told = {f"CUDA_DEVICE_MEMORY_LIMIT_{place}": f"{mib_of(limits)}m" for place in limited}
    return told | ({"CUDA_DEVICE_SM_LIMIT": limits[CORES]} if CORES in limits else {})


def records(limits: Mapping[str, str], uuids: list[str]) -> dict[str, str]:
    """What HAMi writes on such a pod when it has its cards; nothing on one with MIG instances."""
    if GPU not in limits:
        return {}
    cards = "".join(f"{uuid},NVIDIA,{mib_of(limits)},{limits.get(CORES, '0')}:" for uuid in uuids)
    return {"hami.io/vgpu-devices-allocated": f"{cards};", "hami.io/bind-phase": "success"}


def test_the_examples_of_hami_run_at_once_and_each_sees_its_cards(node: Node) -> None:
    """The one that names its card comes first, since others would take it."""
    rig = node.rig
    runs = {name: (limits, wishes) for name, limits, wishes in EXAMPLES if name not in REFUSED}
    first = [name for name, (_, wishes) in runs.items() if NAMED in wishes]
    pods.create(rig, [example(*each) for each in EXAMPLES if each[0] in first])
    pods.wait_running(rig, first)
    pods.create(rig, [example(*each) for each in EXAMPLES if each[0] not in first])
    pods.wait_running(rig, runs)
    listed = json.loads(rig.kubectl("get", "pods", "--selector=from=hami", "--output=json"))["items"]
    by_name = {pod["metadata"]["name"]: pod for pod in listed}
    inside = {name: driver_view.read(told, node.driver) for name, told in pods.told_by_logs(rig, "from=hami").items()}
    holders: Counter[str] = Counter()
    whole: set[str] = set()
    for name, (limits, wishes) in runs.items():
        uuids = placed(by_name[name])
        assert len(uuids) == int(limits.get(GPU, "1")), name
        node.sees(uuids, inside[name])
        assert inside[name].environment.items() >= variables(limits).items(), name
        written = by_name[name]["metadata"]["annotations"]
        told = {key: written[key] for key in ("hami.io/vgpu-devices-allocated", "hami.io/bind-phase") if key in written}
        assert told == records(limits, uuids), name
        allowed = wishes.get(NAMED, "")
        assert not allowed or set(uuids) <= set(allowed.split(",")), name
        assert not set(uuids) & set(wishes.get("nvidia.com/nouse-gpuuuid", "").split(",")), name
        holders.update(uuids)
        if not limits.keys() & {MEMORY, PERCENT}:
            whole |= set(uuids)
    assert {uuid: holders[uuid] for uuid in whole} == dict.fromkeys(whole, 1), "a whole card is nobody else's"
    assert (len(runs), len(REFUSED)) == (16, 1)
    for name, why in REFUSED.items():
        assert by_name[name]["status"]["phase"] == "Pending"
        events = json.loads(rig.kubectl("get", "events", f"--field-selector=involvedObject.name={name}", "-ojson"))
        assert any(why in event["message"] for event in events["items"]), events["items"]


def test_a_container_on_a_mig_instance_sees_that_instance_and_no_other(node: Node) -> None:
    """In NVIDIA's words, which HAMi's users write as well, and in ours."""
    rig = node.rig
    ours = pods.pod("ours", limits={"aliquot.io/gpu": "1"})
    ours["metadata"]["annotations"] = {"aliquot.io/mig": PROFILE}
    theirs = pods.pod("theirs", limits={f"nvidia.com/mig-{PROFILE}": "1"})
    pods.create(rig, [driver_view.with_cuda(theirs), driver_view.with_cuda(ours)])
    pods.wait_running(rig, ["theirs", "ours"])
    uuids = {name: placed(pods.get(rig, name)) for name in ("theirs", "ours")}
    assert sorted(uuids.values()) == [["MIG-1"], ["MIG-2"]], "both of one card"
    for name, (uuid,) in uuids.items():
        node.sees([uuid], driver_view.look(rig, node.driver, name))
    written = rig.cdi_folder.glob("aliquot.io-*")
    specs = [path.read_text() for path in written]  # those of earlier pods may still be there
    named = {tuple(uuid for uuid in ("MIG-1", "MIG-2") if uuid in spec) for spec in specs if "MIG-" in spec}
    assert named == {("MIG-1",), ("MIG-2",)}
    own, other = (node.capability_numbers[uuid] for uuid in ("MIG-1", "MIG-2"))
    (holder,) = (name for name in uuids if uuids[name] == ["MIG-1"])
    assert [opening(rig, holder, *numbers) for numbers in own] == ["No such device or address"] * 2, "no driver"
    assert [opening(rig, holder, *numbers) for numbers in other] == ["Operation not permitted"] * 2
    pods.create(rig, [pods.pod("third", limits={f"nvidia.com/mig-{PROFILE}": "1"})])
    wait_for(
        "the reason of the refusal",
        lambda: "not enough room on the node's GPUs now" in refusals(rig, "third"),
        seconds=30,
        every=0.3,
    )
    assert "nodeName" not in pods.get(rig, "third")["spec"], "kube-scheduler itself counts one that is free"


def test_an_instance_that_is_made_while_the_agent_runs_is_offered_and_handed_over(node: Node) -> None:
    rig = node.rig
    node.cut(PROMPT)
    rig.nvml.replace_instances([*INSTANCES, *PROMPT])
    pods.create(rig, [driver_view.with_cuda(pods.pod("later", limits={"nvidia.com/mig-1g.5gb": "1"}))])
    pods.wait_running(rig, ["later"])
    assert placed(pods.get(rig, "later")) == ["MIG-9"]
    node.sees(["MIG-9"], driver_view.look(rig, node.driver, "later"))


def refusals(rig: Rig, name: str) -> str:
    return rig.kubectl("get", "events", f"--field-selector=involvedObject.name={name}", "--output=jsonpath={..message}")


def opening(rig: Rig, name: str, major: int, minor: int) -> str:
    """How a container fails to open a device node that it makes itself."""
    place = f"/tmp/{major}-{minor}"
    script = f"mkdir -p /tmp; [ -e {place} ] || mknod {place} c {major} {minor}; cat {place} 2>&1 || true"
    return rig.kubectl("exec", name, "--", "sh", "-c", script).rpartition(": ")[2].strip()

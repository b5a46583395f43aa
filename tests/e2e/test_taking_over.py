"""A node with running pods changes hands: from an original's device plugin to our agent, and back."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.checker import Inside
from tests.e2e import left_behind, pods
from tests.e2e.left_behind import Original
from tests.rig import Rig, other_plugin
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.other_plugin import Offer
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

TOGETHER = [left_behind.GPUSHARE, left_behind.GPU_MANAGER, left_behind.ELASTIC]


def served_by(rig: Rig, original: Original, index: int) -> AbstractContextManager[None]:
    """The original's device plugin serves the node; it gives parts of the card at `index`."""
    return offered_by(rig, original.name, original.offers(rig, index))


@contextmanager
def offered_by(rig: Rig, name: str, offers: Sequence[Offer]) -> Iterator[None]:
    file = other_plugin.write(rig.folder / f"{name}.json", offers)
    command: list[str | Path] = [sys.executable, "-m", "tests.rig.other_plugin", rig.device_plugins, file]
    process = rig.start(f"plugin-of-{name}", command)
    try:
        wait_offered(rig, {offer.resource: len(offer.ids) for offer in offers})
        yield
    finally:
        process.kill()


def wait_offered(rig: Rig, amounts: dict[str, int]) -> None:
    def offered() -> bool:
        node = json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))
        return all(node["status"]["allocatable"].get(name) == str(count) for name, count in amounts.items())

    wait_for(f"the node to offer {amounts}", offered, seconds=60, every=0.3)


def started_by(rig: Rig, original: Original, index: int) -> str:
    """A pod of the original, bound and marked as its scheduler does. Returns its name."""
    name = f"of-{original.name}"
    pod = pods.pod(name, limits=original.limits, nodeName=rig.node_name)
    pod["metadata"]["annotations"] = dict(original.left(rig, index))
    pods.create(rig, [pod])
    pods.wait_running(rig, [name])
    return name


def containers(rig: Rig, names: Sequence[str]) -> dict[str, str]:
    return {name: pods.get(rig, name)["status"]["containerStatuses"][0]["containerID"] for name in names}


@pytest.fixture
def without_us(rig: Rig, aliquot: Aliquot) -> Iterator[Aliquot]:
    """The node as before Aliquot: no server, no agent, no inventory."""
    aliquot.server.stop()
    aliquot.agent.stop()
    rig.kubectl("annotate", "node", rig.node_name, "aliquot.io/inventory-")
    yield aliquot
    pods.delete_all(rig)
    if not aliquot.server.running:
        aliquot.start_server()
    aliquot.serve(GPUSHARE, "gpushare")


def test_a_node_of_four_plugins_is_taken_over_and_given_back(rig: Rig, without_us: Aliquot) -> None:
    everyone = [left_behind.NVIDIA, *TOGETHER]
    with ExitStack() as serving:
        serving.enter_context(served_by(rig, left_behind.NVIDIA, 0))
        names = [started_by(rig, left_behind.NVIDIA, 0)]
        whole = pods.look_inside(rig, names[0]).environment[left_behind.VISIBLE]
        shared = next(index for index, gpu in enumerate(rig.nvml.gpus) if gpu.uuid != whole)
        for original in TOGETHER:
            serving.enter_context(served_by(rig, original, shared))
            names.append(started_by(rig, original, shared))
    new = _take_over(rig, without_us, names, everyone)
    recorded = json.loads(pods.get(rig, names[0])["metadata"]["annotations"]["aliquot.io/observed"])
    assert recorded["containers"] == {"main": [whole]}
    assert new.environment[left_behind.VISIBLE] == rig.nvml.gpus[shared].uuid, "the other card is NVIDIA's pod's"
    _give_back(rig, without_us, [*names, "new"], everyone, shared)


@pytest.fixture
def nvidia_with_cdi(rig: Rig) -> Iterator[Original]:
    yield left_behind.NVIDIA_WITH_CDI
    left_behind.nvidia_spec(rig).unlink()


def test_a_node_of_nvidias_plugin_with_cdi_is_taken_over_and_given_back(
    rig: Rig, without_us: Aliquot, nvidia_with_cdi: Original
) -> None:
    """Only the CDI device in kubelet's checkpoint says which card its pod has."""
    with served_by(rig, nvidia_with_cdi, 0):
        names = [started_by(rig, nvidia_with_cdi, 0)]
    seen = pods.look_inside(rig, names[0])
    assert seen.environment[left_behind.VISIBLE] == "void"
    (held,) = (gpu for gpu in rig.nvml.gpus if f"/dev/nvidia{gpu.minor}" in seen.devices)
    (free,) = (gpu for gpu in rig.nvml.gpus if gpu != held)
    new = _take_over(rig, without_us, names, [nvidia_with_cdi])
    recorded = json.loads(pods.get(rig, names[0])["metadata"]["annotations"]["aliquot.io/observed"])
    assert recorded["containers"] == {"main": [held.uuid]}
    assert new.environment[left_behind.VISIBLE] == free.uuid
    _give_back(rig, without_us, [*names, "new"], [nvidia_with_cdi], 0)


def test_a_node_of_hami_is_taken_over_and_given_back(rig: Rig, without_us: Aliquot) -> None:
    with served_by(rig, left_behind.HAMI, 1):
        names = [started_by(rig, left_behind.HAMI, 1)]
    _take_over(rig, without_us, names, [left_behind.HAMI])
    _give_back(rig, without_us, [*names, "new"], [left_behind.HAMI], 1)


def _take_over(rig: Rig, aliquot: Aliquot, names: Sequence[str], left: Sequence[Original]) -> Inside:
    """Our agent follows the originals, and kubelet restarts. What runs goes on, and starts again on its card, even if
    elastic's links in /dev have gone as in a reboot. Returns what a new pod sees."""
    before, seen = containers(rig, names), {name: pods.look_inside(rig, name) for name in names}
    aliquot.start_server()
    aliquot.serve([original.dialect for original in left], "native")
    _restart_kubelet(rig, aliquot)
    assert containers(rig, names) == before
    for link in rig.dev_folder.glob("elastic-gpu*"):
        link.unlink()
    for name in names:
        pods.restart(rig, name)
        assert pods.look_inside(rig, name) == seen[name]
    pods.create(rig, [pods.pod("new", limits=left[-1].limits)])
    pods.wait_running(rig, ["new"])
    return pods.look_inside(rig, "new")


def _restart_kubelet(rig: Rig, aliquot: Aliquot) -> None:
    registered = aliquot.registrations()
    rig.kubelet.restart()
    aliquot.wait_registered(registered)
    rig.wait_node_ready()


def _give_back(rig: Rig, aliquot: Aliquot, names: Sequence[str], to: Sequence[Original], index: int) -> None:
    """The originals follow our agent, and kubelet restarts. A container of ours starts again on its card, too."""
    before, seen = containers(rig, names), {name: pods.look_inside(rig, name) for name in names}
    aliquot.agent.stop()
    with ExitStack() as serving:
        for original in to:
            serving.enter_context(served_by(rig, original, index))
        rig.kubelet.restart()
        rig.wait_node_ready()
        assert containers(rig, names) == before
        for name in names:
            pods.restart(rig, name)
            assert pods.look_inside(rig, name) == seen[name]


def test_rivals_on_a_socket_that_nobody_knows_and_for_another_resource_are_named(rig: Rig, aliquot: Aliquot) -> None:
    """kubelet tells no plugin of the others, and asks the one that came last. NVIDIA's hands out whole cards of which
    our agent gives parts."""
    rival = Offer(pods.GPU_MEM, "1763459952.sock", ["nvidia0", "nvidia1", "nvidia2"], {})

    def told() -> str:
        return rig.kubectl(
            "get", "events", "--field-selector=reason=RivalDevicePlugin", "--output=jsonpath={..message}"
        )

    uuids = sorted(gpu.uuid for gpu in rig.nvml.gpus)
    with offered_by(rig, "a-stranger", [rival]), served_by(rig, left_behind.NVIDIA, 0):
        named = [
            f"another device plugin offers {pods.GPU_MEM}, too, with ids such as nvidia0: remove that plugin",
            f"another device plugin offers nvidia.com/gpu with ids such as {uuids[0]}, and so hands out cards",
        ]
        wait_for("the rivals to be named", lambda: all(text in told() for text in named), seconds=60, every=0.3)
    aliquot.agent.stop()
    aliquot.start_agent()
    pods.create(rig, [pods.pod("after-it")])
    pods.wait_running(rig, ["after-it"])

"""A CUDA program runs in a container: it finds the driver's files and exactly its cards, whatever image and pod say."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e import driver_view, pods
from tests.rig import Rig, devices
from tests.rig.aliquot import Aliquot
from tests.rig.cuda import LIBRARIES, NAMES, OTHERS, Driver
from tests.rig.cuda.toolkit_spec import V1_17, V1_20, Toolkit
from tests.rig.nvml import Gpu
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

RED_HAT = "/usr/lib64"


@pytest.fixture
def fabric(rig: Rig) -> Iterator[None]:
    """The node has NVSwitch and IMEX."""
    made = devices.Fabric(rig.dev_folder)
    yield
    made.remove()


@pytest.fixture(params=[V1_20, V1_17], ids=lambda toolkit: toolkit.spec_name)
def toolkit(request: pytest.FixtureRequest, driver: Driver, aliquot: Aliquot) -> Iterator[Toolkit]:
    """The toolkit of a version, which has written its spec while the agent ran."""
    made: Toolkit = request.param
    spec = driver.write_spec(made)
    wait_for("the agent to read the toolkit's spec", lambda: driver_files(aliquot) == str(spec), seconds=30)
    yield made
    spec.unlink()
    wait_for("the agent to forget the toolkit's spec", lambda: driver_files(aliquot) == "none", seconds=30)


@pytest.fixture
def driver_root(driver: Driver, aliquot: Aliquot) -> Iterator[Driver]:
    """A node without the toolkit."""
    restart_agent(aliquot, "--driver-root", str(driver.root))
    yield driver
    restart_agent(aliquot)


@pytest.fixture
def nvidia_runtime(rig: Rig, driver: Driver, aliquot: Aliquot) -> Iterator[Driver]:
    """NVIDIA's runtime is containerd's default, and obeys the variables of every container."""
    aliquot.agent.stop()
    rig.containerd.restart(driver.nvidia_runtime())
    restart_agent(aliquot, "--driver-root", str(driver.root))
    yield driver
    pods.delete_all(rig)
    aliquot.agent.stop()
    rig.containerd.restart()
    restart_agent(aliquot)


@pytest.mark.usefixtures("fabric")
def test_a_container_has_everything_of_its_card_in_the_toolkits_spec_and_nothing_of_another(
    rig: Rig, driver: Driver, toolkit: Toolkit
) -> None:
    """Each pod fills a card."""
    pods.create(rig, [cuda_pod(name, units=15) for name in ("first", "second")])
    pods.wait_running(rig, ["first", "second"])
    cards = {name: card_of(rig, name) for name in ("first", "second")}
    assert {card.uuid for card in cards.values()} == {card.uuid for card in rig.nvml.gpus}
    for name, card in cards.items():
        seen = driver_view.look(rig, driver, name)
        expected = driver_view.of_toolkit(driver, [card], toolkit)
        assert seen.driver == replace(expected, nodes={**expected.nodes, **devices.Fabric.FOR_ALL})
        assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid, "neither the image's all nor the toolkit's void"
        assert ("NVIDIA_CTK_LIBCUDA_DIR" in seen.environment) == toolkit.names_libcuda


@pytest.mark.usefixtures("fabric")
def test_without_the_toolkit_a_cuda_program_finds_the_drivers_files_below_the_driver_root(
    rig: Rig, driver_root: Driver
) -> None:
    """No hook runs ldconfig: the libraries are there under each of their names, for either family's loader."""
    both = cuda_pod("both", units=4)
    both["metadata"]["labels"] = {"aliyun.com/gpu-count": "2"}
    pods.create(rig, [both])
    pods.wait_running(rig, ["both"])
    seen = driver_view.look(rig, driver_root, "both").driver
    libraries = {f"{folder}/{name}" for folder in (LIBRARIES, RED_HAT) for name in NAMES}
    assert seen == driver_view.DriverView(
        nodes={
            **{f"/dev/nvidia{card.minor}": (195, card.minor) for card in rig.nvml.gpus},
            **driver_view.CONTROL,
            **devices.Fabric.FOR_ALL,
        },
        mounts=frozenset(libraries | set(OTHERS)),
        files={path: path for path in OTHERS},
        links={},
        hooks=[],
        drm_groups=frozenset(),
        cuda=tuple(sorted(card.minor for card in rig.nvml.gpus)),
    )


@pytest.mark.usefixtures("driver_root")
def test_a_container_can_open_no_other_card_even_if_it_makes_the_device_node(rig: Rig) -> None:
    pods.create(rig, [cuda_pod("one", units=3)])
    pods.wait_running(rig, ["one"])
    card = card_of(rig, "one")
    (other,) = (gpu for gpu in rig.nvml.gpus if gpu.uuid != card.uuid)
    made = f"mknod -m 666 /dev/nvidia{other.minor} c 195 {other.minor} && echo made"
    assert inside(rig, "one", made) == "made\n"
    assert count_cards(rig, "one") == [card.uuid]


@pytest.mark.usefixtures("nvidia_runtime")
def test_nvidias_runtime_adds_nothing_to_what_our_spec_gives(rig: Rig, aliquot: Aliquot) -> None:
    """The pod that asks for no GPU shows what would happen: it is what the agent warns of."""
    greedy = cuda_pod("greedy", units=3)
    greedy["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    bare = cuda_pod("bare", units=0)
    del bare["spec"]["containers"][0]["resources"]
    pods.create(rig, [greedy, bare])
    pods.wait_running(rig, ["greedy", "bare"])
    assert cards_in(rig, "bare") == {f"/dev/nvidia{card.minor}" for card in rig.nvml.gpus}
    assert "every container that asks for no GPU gets all cards" in agent_log(aliquot)

    card = card_of(rig, "greedy")
    assert count_cards(rig, "greedy") == [card.uuid]
    assert cards_in(rig, "greedy") == {f"/dev/nvidia{card.minor}"}
    environment = pods.look_inside(rig, "greedy").environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"

    restart_agent(aliquot)  # now the driver's files would come from NVIDIA's runtime
    pods.create(rig, [{**greedy, "metadata": {"name": "plain", "namespace": "default"}}])
    pods.wait_running(rig, ["plain"])
    card = card_of(rig, "plain")
    assert cards_in(rig, "plain") == {f"/dev/nvidia{card.minor}"}
    environment = pods.look_inside(rig, "plain").environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def cuda_pod(name: str, units: int) -> dict[str, Any]:
    return driver_view.with_cuda(pods.pod(name, units))


def restart_agent(aliquot: Aliquot, *flags: str) -> None:
    aliquot.agent.stop()
    aliquot.start_agent(flags=flags)


def agent_log(aliquot: Aliquot) -> str:
    return aliquot.agent.log.read_text()


def driver_files(aliquot: Aliquot) -> str:
    """Where they come from, as the agent said last."""
    said = [line for line in agent_log(aliquot).splitlines() if "found the driver's files" in line]
    return str(json.loads(said[-1])["source"]) if said else ""


def card_of(rig: Rig, name: str) -> Gpu:
    placement = json.loads(pods.get(rig, name)["metadata"]["annotations"]["aliquot.io/placement"])
    ((part,),) = placement["containers"].values()
    return next(gpu for gpu in rig.nvml.gpus if gpu.uuid == part["uuid"])


def inside(rig: Rig, name: str, script: str) -> str:
    return rig.kubectl("exec", name, "--", "sh", "-c", script)


def count_cards(rig: Rig, name: str) -> list[str]:
    version, *uuids = inside(rig, name, "count-cards").splitlines()
    assert version == "CUDA 12.8"
    return uuids


def cards_in(rig: Rig, name: str) -> set[str]:
    """The paths of the device nodes of cards in a pod's container."""
    return {path for path in pods.look_inside(rig, name).devices if re.fullmatch(r"/dev/nvidia\d+", path)}

"""A CUDA program runs in a container: it finds the driver's files and exactly its cards, whatever image and pod say."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import pods
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.cuda import IMAGE, LIBRARIES, NAMES, OTHERS, VERSION, Driver
from tests.rig.nvml import Gpu
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

OF_EVERY_CARD = {"/dev/nvidiactl": "195:255", "/dev/nvidia-uvm": "235:0", "/dev/nvidia-uvm-tools": "235:1"}
RED_HAT = "/usr/lib64"
_NODES = r"find /dev \( -name 'nvidia*' -o -path '/dev/dri/*' \) -type c -exec stat -c '%n %t:%T' {} +"


@pytest.fixture
def toolkit(driver: Driver, aliquot: Aliquot) -> Iterator[Driver]:
    """The toolkit has written its spec while the agent ran."""
    driver.write_spec()
    source = str(driver.spec)
    wait_for("the agent to read the toolkit's spec", lambda: driver_files(aliquot) == source, seconds=30)
    yield driver
    driver.spec.unlink()
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


def test_a_container_has_everything_of_its_card_in_the_toolkits_spec_and_nothing_of_another(
    rig: Rig, toolkit: Driver
) -> None:
    """Each pod fills a card."""
    pods.create(rig, [cuda_pod(name, units=15) for name in ("first", "second")])
    pods.wait_running(rig, ["first", "second"])
    seen = [card_of(rig, name) for name in ("first", "second")]
    assert {card.uuid for card in seen} == {card.uuid for card in rig.nvml.gpus}
    for name, card in zip(("first", "second"), seen, strict=True):
        assert count_cards(rig, name) == [card.uuid]
        render = 128 + card.minor
        assert device_nodes(rig, name) == {
            f"/dev/nvidia{card.minor}": f"195:{card.minor}",
            f"/dev/dri/card{card.minor}": f"226:{card.minor}",
            f"/dev/dri/renderD{render}": f"226:{render}",
            **OF_EVERY_CARD,
        }
        assert set(mounts(rig, name, toolkit)) == {
            f"{LIBRARIES}/libcuda.so.{VERSION}",
            f"{LIBRARIES}/libnvidia-ml.so.{VERSION}",
            f"/usr/share/nvidia/cards/{card.minor}",
            *OTHERS,
        }
        by_path = f"/dev/dri/by-path/pci-0000:0{card.minor}:00.0-card"
        assert inside(rig, name, "cat /hooks").splitlines() == [
            f"create-symlinks --link libcuda.so.1::{LIBRARIES}/libcuda.so",
            f"update-ldcache --folder {LIBRARIES}",
            f"create-symlinks --link ../card{card.minor}::{by_path}",
        ]
        assert inside(rig, name, "ls /dev/dri/by-path").split() == [by_path.rpartition("/")[2]]
        links = {
            f"{LIBRARIES}/libcuda.so": "libcuda.so.1",
            f"{LIBRARIES}/libcuda.so.1": f"libcuda.so.{VERSION}",
            by_path: f"../card{card.minor}",
        }
        assert inside(rig, name, f"for link in {' '.join(links)}; do readlink $link; done").split() == [*links.values()]
        environment = pods.look_inside(rig, name).environment
        assert environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid, "neither the image's all nor the toolkit's void"
        assert environment["NVIDIA_CTK_LIBCUDA_DIR"] == LIBRARIES


def test_without_the_toolkit_a_cuda_program_finds_the_drivers_files_below_the_driver_root(
    rig: Rig, driver_root: Driver
) -> None:
    """No hook runs ldconfig: the libraries are there under each of their names, for either family's loader."""
    both = cuda_pod("both", units=4)
    both["metadata"]["labels"] = {"aliyun.com/gpu-count": "2"}
    pods.create(rig, [both])
    pods.wait_running(rig, ["both"])
    assert sorted(count_cards(rig, "both")) == sorted(card.uuid for card in rig.nvml.gpus)
    assert device_nodes(rig, "both") == {
        **{f"/dev/nvidia{card.minor}": f"195:{card.minor}" for card in rig.nvml.gpus},
        **OF_EVERY_CARD,
    }
    libraries = {f"{folder}/{name}" for folder in (LIBRARIES, RED_HAT) for name in NAMES}
    assert set(mounts(rig, "both", driver_root)) == libraries | set(OTHERS)
    assert inside(rig, "both", "cat /usr/bin/nvidia-smi").strip() == "/usr/bin/nvidia-smi"


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
    assert cards_in(device_nodes(rig, "bare")) == {f"/dev/nvidia{card.minor}" for card in rig.nvml.gpus}
    assert "every container that asks for no GPU gets all cards" in agent_log(aliquot)

    card = card_of(rig, "greedy")
    assert count_cards(rig, "greedy") == [card.uuid]
    assert cards_in(device_nodes(rig, "greedy")) == {f"/dev/nvidia{card.minor}"}
    environment = pods.look_inside(rig, "greedy").environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"

    restart_agent(aliquot)  # now the driver's files would come from NVIDIA's runtime
    pods.create(rig, [{**greedy, "metadata": {"name": "plain", "namespace": "default"}}])
    pods.wait_running(rig, ["plain"])
    card = card_of(rig, "plain")
    assert cards_in(device_nodes(rig, "plain")) == {f"/dev/nvidia{card.minor}"}
    environment = pods.look_inside(rig, "plain").environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def cuda_pod(name: str, units: int) -> dict[str, Any]:
    made = pods.pod(name, units)
    made["spec"]["containers"][0]["image"] = IMAGE
    return made


def restart_agent(aliquot: Aliquot, *flags: str) -> None:
    aliquot.agent.stop()
    aliquot.start_agent(flags=flags)


def agent_log(aliquot: Aliquot) -> str:
    return aliquot.agent.log.read_text()


def driver_files(aliquot: Aliquot) -> str:
    """Where they come from, as the agent said last."""
    said = [line for line in agent_log(aliquot).splitlines() if "containers get the driver's files" in line]
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


def device_nodes(rig: Rig, name: str) -> dict[str, str]:
    """The numbers of NVIDIA's device nodes by their paths."""
    lines = (line.split() for line in inside(rig, name, _NODES).splitlines())
    return {path: ":".join(str(int(number, 16)) for number in numbers.split(":")) for path, numbers in lines}


def cards_in(nodes: dict[str, str]) -> set[str]:
    return {path for path in nodes if re.fullmatch(r"/dev/nvidia\d+", path)}


def mounts(rig: Rig, name: str, driver: Driver) -> list[str]:
    """Where the container has files of the driver root."""
    lines = (line.split() for line in inside(rig, name, "cat /proc/self/mountinfo").splitlines())
    return [fields[4] for fields in lines if f"/{driver.root.name}/" in fields[3]]

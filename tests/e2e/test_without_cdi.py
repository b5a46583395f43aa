"""A real kubelet on Debian's containerd 1.6, which has no CDI: the answer to Allocate carries the devices."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checker import Inside, findings
from tests.e2e import deployments, pods
from tests.e2e.test_cuda import card_of, cards_in, count_cards, cuda_pod, restart_agent
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.cuda import Driver
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

WITHOUT_CDI = "containers get their devices at Allocate, without CDI"


@pytest.fixture(scope="module")
def rig(progress: Callable[[str], None]) -> Iterator[Rig]:
    with Rig.up(progress=progress, has_cdi=False) as running:
        yield running


@pytest.fixture(scope="module")
def started(rig: Rig) -> Aliquot:
    aliquot = Aliquot(rig)
    aliquot.start(["gpushare", "tencent"])
    return aliquot


@pytest.fixture
def aliquot(rig: Rig, started: Aliquot) -> Iterator[Aliquot]:
    """The server and the agent, on a cluster without pods."""
    yield started
    pods.delete_all(rig)


@pytest.fixture
def alone(aliquot: Aliquot) -> Iterator[Aliquot]:
    """The agent cannot reach PodResources, as under an original's manifest."""
    aliquot.agent.stop()
    aliquot.start_agent(flags=["--pod-resources", str(Path("not-mounted") / "kubelet.sock")])
    yield aliquot
    aliquot.agent.stop()
    aliquot.start_agent()


def test_a_gpushare_pod_sees_exactly_its_card(rig: Rig, aliquot: Aliquot) -> None:
    version = rig.kubectl("get", "node", rig.node_name, "--output=jsonpath={.status.nodeInfo.containerRuntimeVersion}")
    assert version.startswith("containerd://1.6.")
    said = [line for line in aliquot.agent.log.read_text().splitlines() if WITHOUT_CDI in line]
    assert ["has CDI disabled" in line for line in said] == [True]
    pods.create(rig, [pods.pod("plain", units=3)])
    pods.wait_running(rig, ["plain"])
    annotations = pods.get(rig, "plain")["metadata"]["annotations"]
    card = rig.nvml.gpus[_part(annotations)["index"]]
    inside = pods.look_inside(rig, "plain")
    assert inside.environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    units = str(card.mib // 1024)
    expected = {"IDX": annotations["ALIYUN_COM_GPU_MEM_IDX"], "POD": "3", "CONTAINER": "3", "DEV": units}
    assert {key: inside.environment[f"ALIYUN_COM_GPU_MEM_{key}"] for key in expected} == expected
    assert _cards(inside) == {f"/dev/nvidia{card.minor}": (195, card.minor)}
    assert inside.devices["/dev/nvidiactl"] == (195, 255)
    assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    assert findings(pods.observe(rig), ["default/plain"]) == []
    assert list(rig.cdi_folder.iterdir()) == []


@pytest.mark.usefixtures("aliquot")
def test_a_tencent_pod_waits_for_its_late_placement_and_sees_exactly_its_card(rig: Rig) -> None:
    """It went past our scheduler, and it asks for two resources."""
    wanted = pods.pod("vcuda", nodeName=rig.node_name)
    limits = {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"}
    wanted["spec"]["containers"][0]["resources"]["limits"] = limits
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["vcuda"])
    card = rig.nvml.gpus[_part(pods.get(rig, "vcuda")["metadata"]["annotations"])["index"]]
    inside = pods.look_inside(rig, "vcuda")
    assert inside.environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert inside.environment["ALIQUOT_ALSO_ASKED"] == "tencent.com/vcuda-memory"
    assert _cards(inside) == {f"/dev/nvidia{card.minor}": (195, card.minor)}


@pytest.mark.usefixtures("aliquot")
def test_a_pod_s_own_variables_win_so_one_that_names_cards_is_refused(rig: Rig) -> None:
    greedy, other = pods.pod("greedy", units=2), pods.pod("other", units=3)
    greedy["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    other["spec"]["containers"][0]["env"] = [{"name": "ALIYUN_COM_GPU_MEM_POD", "value": "forged"}]
    pods.create(rig, [greedy, other])
    wait_for("the refusal", lambda: "sets NVIDIA_VISIBLE_DEVICES itself" in _waiting(rig, "greedy"), seconds=60)
    pods.wait_running(rig, ["other"])
    assert pods.look_inside(rig, "other").environment["ALIYUN_COM_GPU_MEM_POD"] == "forged", "what kubelet does"


@pytest.mark.usefixtures("aliquot")
def test_equal_pods_at_once_on_both_cards_each_see_their_own(rig: Rig) -> None:
    """PodResources lists a pod from its admission on, so the agent knows which of them is asked for."""
    names = [f"equal-{number}" for number in range(10)]
    _at_once(rig, [pods.pod(name, units=3) for name in names])
    pods.wait_running(rig, names)
    seen = pods.observe(rig)
    assert findings(seen, [f"default/{name}" for name in names]) == []
    assert seen.inside is not None
    used = {inside.environment["NVIDIA_VISIBLE_DEVICES"] for inside in seen.inside.values()}
    assert used == {gpu.uuid for gpu in rig.nvml.gpus}, "ten pods of 3 fill both cards of 15"


@pytest.mark.usefixtures("aliquot")
def test_two_containers_and_an_init_container_share_the_pods_card(rig: Rig) -> None:
    wanted = pods.pod("several", units=2)
    (main,) = wanted["spec"]["containers"]
    wanted["spec"]["containers"].append({**main, "name": "second", "resources": {"limits": {pods.GPU_MEM: "4"}}})
    wanted["spec"]["initContainers"] = [{**main, "name": "first", "command": ["sh", "-c", "env; ls /dev/nvidia?"]}]
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["several"])
    assert findings(pods.observe(rig), ["default/several"]) == []
    before = rig.kubectl("logs", "several", "--container=first")
    second = pods.look_inside(rig, "several", "second").environment
    assert f"NVIDIA_VISIBLE_DEVICES={second['NVIDIA_VISIBLE_DEVICES']}\n" in before
    assert "ALIYUN_COM_GPU_MEM_CONTAINER=2\n" in before
    assert second["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"


def test_restarts_of_agent_kubelet_and_container_keep_the_card(rig: Rig, aliquot: Aliquot) -> None:
    aliquot.agent.stop()
    aliquot.start_agent(fault="after-allocate")
    wanted = pods.pod("kept", units=3)
    wanted["spec"]["containers"][0]["command"] = ["sh", "-c", "trap 'exit 1' TERM; sleep 3600 & wait"]
    pods.create(rig, [wanted])
    assert aliquot.agent.wait(60) == -signal.SIGKILL
    aliquot.start_agent()
    pods.wait_running(rig, ["kept"])
    before = pods.look_inside(rig, "kept")
    registered = aliquot.registrations()
    rig.kubelet.restart()
    wait_for("the agent to register again", lambda: aliquot.registrations() > registered, seconds=60)
    reach = ("exec", "kept", "--", "echo", "reached")
    wait_for("kubelet to reach the container again", lambda: rig.kubectl(*reach, check=False), seconds=60)
    rig.kubectl("exec", "kept", "--", "kill", "1", check=False)
    wait_for("the second start", lambda: _restarted(rig, "kept"), seconds=60)
    assert pods.look_inside(rig, "kept") == before


def test_a_container_that_was_answered_with_another_card_never_starts(rig: Rig, aliquot: Aliquot) -> None:
    aliquot.agent.stop()
    aliquot.start_agent(fault="after-allocate")
    pods.create(rig, [pods.pod("swapped", units=3)])
    assert aliquot.agent.wait(60) == -signal.SIGKILL
    placement = json.loads(pods.get(rig, "swapped")["metadata"]["annotations"]["aliquot.io/placement"])
    ((part,),) = placement["containers"].values()
    (other,) = (gpu for gpu in rig.nvml.gpus if gpu.uuid != part["uuid"])
    answered, part["uuid"], part["index"], part["minor"] = part["uuid"], other.uuid, 1 - part["index"], other.minor
    rig.kubectl("annotate", "--overwrite", "pod", "swapped", f"aliquot.io/placement={json.dumps(placement)}")
    aliquot.start_agent()
    text = rf"is placed on {other.uuid} .*, but Allocate answered with {answered} .*: delete the pod"
    wait_for("the refusal", lambda: re.search(text, _waiting(rig, "swapped")), seconds=60)
    assert pods.get(rig, "swapped")["status"]["phase"] == "Pending"


@pytest.mark.usefixtures("alone")
def test_without_podresources_one_of_equal_pods_on_two_cards_fails_and_is_replaced(rig: Rig) -> None:
    wanted = pods.pod("unused", units=10)
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "twins"}},
        "template": {"metadata": {"labels": {"app": "twins"}}, "spec": wanted["spec"]},
    }
    twins = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "twins"}, "spec": spec}
    _at_once(rig, [twins])
    wait_for("two of them to run", lambda: len(_of_phase(rig, "Running")) == 2, seconds=90)
    failed = _of_phase(rig, "Failed")
    assert failed, "kubelet asked for one of them while the other was placed on the other card"
    for pod in failed:
        message = pod["status"]["message"]
        assert "Allocate failed due to rpc error: code = FailedPrecondition desc = kubelet does not say" in message
        assert all(f"placed on {gpu.uuid}" in message for gpu in rig.nvml.gpus)
    names = [f"default/{pod['metadata']['name']}" for pod in _of_phase(rig, "Running")]
    assert findings(pods.observe(rig), names) == []
    deployments.delete_all(rig)


@pytest.mark.parametrize("agent_first", [False, True], ids=["kubelet first", "agent first"])
@pytest.mark.usefixtures("deployed")
def test_after_a_reboot_pods_are_back_on_their_cards_or_are_replaced(
    rig: Rig, aliquot: Aliquot, *, agent_first: bool
) -> None:
    """kubelet keeps the answer to Allocate for the life of a pod."""
    limits = {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"}
    wanted = {"gpushare": pods.pod("", units=8), "tencent": pods.pod("", limits=limits)}
    running = [name for each, pod in wanted.items() for name in deployments.create(rig, each, 1, pod)]
    cards = {name: pods.cards_of(rig, name) for name in running}
    ended = {each: deployments.containers(rig, each) for each in wanted}
    aliquot.agent.kill()
    rig.power_off()
    registered = aliquot.registrations()
    if agent_first:
        aliquot.agent.start()
        rig.power_on()
    else:
        rig.power_on()
        deployments.wait_failed(rig, running)
        aliquot.agent.start()
    aliquot.wait_registered(registered)
    after = [name for each, old in ended.items() for name in deployments.wait_back_or_replaced(rig, each, old)]
    cards_now = {name: pods.cards_of(rig, name) for name in after}
    back = cards_now.keys() & cards.keys()
    assert {name: cards_now[name] for name in back} == {name: cards[name] for name in back}


@pytest.fixture
def deployed(rig: Rig, aliquot: Aliquot) -> Iterator[None]:
    """Without Deployments, and with an agent, after the test."""
    yield
    deployments.delete_all(rig)
    if not aliquot.agent.running:
        aliquot.start_agent()


@pytest.fixture
def driver_root(driver: Driver, aliquot: Aliquot) -> Iterator[None]:
    """A node without NVIDIA's runtime."""
    restart_agent(aliquot, "--driver-root", str(driver.root))
    yield
    restart_agent(aliquot)


@pytest.fixture
def nvidia_runtime(rig: Rig, driver: Driver, aliquot: Aliquot) -> Iterator[None]:
    """NVIDIA's runtime is containerd's default, and obeys the variables of every container."""
    aliquot.agent.stop()
    rig.containerd.restart(driver.nvidia_runtime())
    aliquot.start_agent(flags=["--driver-root", str(driver.root)])
    yield
    pods.delete_all(rig)
    aliquot.agent.stop()
    rig.containerd.restart()
    aliquot.start_agent()


@pytest.mark.usefixtures("driver_root")
def test_a_cuda_program_runs_with_the_files_of_the_driver_root(rig: Rig) -> None:
    pods.create(rig, [cuda_pod("cuda", units=3)])
    pods.wait_running(rig, ["cuda"])
    card = card_of(rig, "cuda")
    assert count_cards(rig, "cuda") == [card.uuid]
    assert cards_in(rig, "cuda") == {f"/dev/nvidia{card.minor}"}


@pytest.mark.usefixtures("nvidia_runtime")
def test_nvidias_runtime_adds_the_card_of_the_placement_though_the_image_asks_for_all(rig: Rig) -> None:
    """The driver's files come from NVIDIA's runtime, so it must be told the card. The pod that asks for no GPU shows
    what that runtime does with the image's own words, and the Node says so. A pod cannot ask for more of the driver."""
    bare, hidden, greedy = cuda_pod("bare", units=0), cuda_pod("hidden", units=3), cuda_pod("greedy", units=1)
    del bare["spec"]["containers"][0]["resources"]
    rig.kubectl("create", "configmap", "hidden", "--from-literal=NVIDIA_VISIBLE_DEVICES=all")
    hidden["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "hidden"}}]
    greedy["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]
    pods.create(rig, [cuda_pod("one", units=3), bare, hidden, greedy])
    pods.wait_running(rig, ["one", "bare"])
    wait_for("the refusal of what nobody sees", lambda: "envFrom" in _waiting(rig, "hidden"), seconds=60)
    wait_for("the refusal", lambda: "sets NVIDIA_DRIVER_CAPABILITIES itself" in _waiting(rig, "greedy"), seconds=60)
    rig.kubectl("delete", "configmap", "hidden")
    said = '--output=jsonpath={.status.conditions[?(@.type=="AliquotCardsGuarded")].reason}'
    assert rig.kubectl("get", "node", rig.node_name, said) == "CardsOpen"
    assert cards_in(rig, "bare") == {f"/dev/nvidia{card.minor}" for card in rig.nvml.gpus}
    card = card_of(rig, "one")
    assert cards_in(rig, "one") == {f"/dev/nvidia{card.minor}"}
    environment = pods.look_inside(rig, "one").environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def _at_once(rig: Rig, objects: list[dict[str, Any]]) -> None:
    """kubelet hears of all pods at the same moment."""
    rig.kubelet.process.signal(signal.SIGSTOP)
    pods.create(rig, objects)
    wait_for("the pods to be bound", lambda: _all_bound(rig, objects), seconds=30)
    rig.kubelet.process.signal(signal.SIGCONT)


def _all_bound(rig: Rig, objects: list[dict[str, Any]]) -> bool:
    listed = json.loads(rig.kubectl("get", "pods", "--output=json"))["items"]
    bound = [pod for pod in listed if pod["spec"].get("nodeName")]
    wanted: int = sum(each["spec"].get("replicas", 1) for each in objects)
    return len(bound) == wanted


def _of_phase(rig: Rig, phase: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(rig.kubectl("get", "pods", "--output=json"))["items"]
    return [item for item in items if item["status"].get("phase") == phase]


def _part(annotations: dict[str, str]) -> dict[str, Any]:
    ((part,),) = json.loads(annotations["aliquot.io/placement"])["containers"].values()
    found: dict[str, Any] = part
    return found


def _cards(inside: Inside) -> dict[str, tuple[int, int]]:
    return {path: numbers for path, numbers in inside.devices.items() if re.fullmatch(r"/dev/nvidia\d+", path)}


def _restarted(rig: Rig, name: str) -> bool:
    (status,) = pods.get(rig, name)["status"]["containerStatuses"]
    return bool(status["restartCount"] == 1 and "running" in status["state"])


def _waiting(rig: Rig, name: str) -> str:
    statuses = pods.get(rig, name)["status"].get("containerStatuses", [])
    return "".join(status["state"].get("waiting", {}).get("message", "") for status in statuses)

"""One gpushare pod all the way: real kube-scheduler, our filter and bind, real kubelet and containerd, our agent."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.agent import runtime
from tests.checker import findings
from tests.e2e import pods
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot")]

ANNOTATIONS = {
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_DEV",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
}
GPU_COUNT = "aliyun.com/gpu-count"
VARIABLES = ["NVIDIA_VISIBLE_DEVICES", *(f"ALIYUN_COM_GPU_MEM_{key}" for key in ("IDX", "POD", "CONTAINER", "DEV"))]


def test_a_pod_gets_exactly_the_card_that_was_chosen(rig: Rig) -> None:
    """Also when its owner set the variables: what the CDI spec says wins."""
    wanted = pods.pod("plain", units=3)
    wanted["spec"]["containers"][0]["env"] = [{"name": name, "value": "forged"} for name in VARIABLES]
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["plain"])

    running = pods.get(rig, "plain")
    annotations = running["metadata"]["annotations"]
    assert annotations.keys() >= ANNOTATIONS
    assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    ((part,),) = json.loads(annotations["aliquot.io/placement"])["containers"].values()

    inside = pods.look_inside(rig, "plain")
    card = rig.nvml.gpus[part["index"]]
    assert part["uuid"] == card.uuid
    assert inside.environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert inside.devices[f"/dev/nvidia{card.minor}"] == (195, card.minor)
    assert [path for path in inside.devices if re.fullmatch(r"/dev/nvidia\d+", path)] == [f"/dev/nvidia{card.minor}"]
    units = card.mib // 1024
    expected = {"IDX": str(part["index"]), "POD": "3", "CONTAINER": "3", "DEV": str(units)}
    assert {key: inside.environment[f"ALIYUN_COM_GPU_MEM_{key}"] for key in expected} == expected
    assert findings(pods.observe(rig), ["default/plain"]) == []


def test_a_pod_that_asks_for_the_number_of_cards_gets_exactly_one_whole_card(rig: Rig) -> None:
    wanted = pods.pod("whole")
    wanted["spec"]["containers"][0]["resources"]["limits"] = {GPU_COUNT: "1"}
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["whole"])

    ((part,),) = json.loads(pods.get(rig, "whole")["metadata"]["annotations"]["aliquot.io/placement"])[
        "containers"
    ].values()
    card = rig.nvml.gpus[part["index"]]
    units = str(card.mib // 1024)
    inside = pods.look_inside(rig, "whole")
    assert (part["uuid"], part["mib"]) == (card.uuid, card.mib)
    assert [path for path in inside.devices if re.fullmatch(r"/dev/nvidia\d+", path)] == [f"/dev/nvidia{card.minor}"]
    assert inside.environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    expected = {"IDX": str(part["index"]), "POD": units, "CONTAINER": units, "DEV": units}
    assert {key: inside.environment[f"ALIYUN_COM_GPU_MEM_{key}"] for key in expected} == expected


def test_a_container_that_asks_for_memory_and_number_finds_its_devices_once(rig: Rig) -> None:
    """kubelet asks both plugins, in an order of its own, and the runtime gets two names."""
    wanted = pods.pod("both")
    wanted["spec"]["containers"][0]["resources"]["limits"] = {pods.GPU_MEM: "4", GPU_COUNT: "2"}
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["both"])
    inside = pods.look_inside(rig, "both")
    assert inside.environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(gpu.uuid for gpu in rig.nvml.gpus)
    assert inside.environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
    seen = sorted(path for path in inside.devices if re.fullmatch(r"/dev/nvidia\d+", path))
    assert seen == sorted(f"/dev/nvidia{gpu.minor}" for gpu in rig.nvml.gpus)


def test_the_node_offers_the_number_of_its_cards_beside_their_memory(rig: Rig) -> None:
    """Readers of gpushare's nodes divide one by the other."""
    status = json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))["status"]
    assert [status[side][GPU_COUNT] for side in ("capacity", "allocatable")] == [str(len(rig.nvml.gpus))] * 2


def test_ten_equal_pods_at_once_each_get_their_own_card(rig: Rig) -> None:
    names = [f"equal-{number}" for number in range(10)]
    pods.create(rig, [pods.pod(name, units=3) for name in names])
    pods.wait_running(rig, names)
    seen = pods.observe(rig)
    assert findings(seen, [f"default/{name}" for name in names]) == []
    assert seen.inside is not None
    used = {inside.environment["NVIDIA_VISIBLE_DEVICES"] for inside in seen.inside.values()}
    assert used == {gpu.uuid for gpu in rig.nvml.gpus}, "ten pods of 3 fill both cards of 15"


def test_two_containers_and_an_init_container_share_the_pods_card(rig: Rig) -> None:
    """kubelet gives an init container's ids on to later containers, and PodResources never lists it."""
    wanted = pods.pod("several", units=2)
    (main,) = wanted["spec"]["containers"]
    wanted["spec"]["containers"].append({**main, "name": "second", "resources": {"limits": {pods.GPU_MEM: "4"}}})
    wanted["spec"]["initContainers"] = [{**main, "name": "first", "command": ["sh", "-c", "env; ls /dev/nvidia?"]}]
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["several"])
    assert findings(pods.observe(rig), ["default/several"]) == []
    uuid = pods.look_inside(rig, "several", "second").environment["NVIDIA_VISIBLE_DEVICES"]
    before = rig.kubectl("logs", "several", "--container=first")
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}\n" in before
    assert "ALIYUN_COM_GPU_MEM_CONTAINER=2\n" in before
    assert pods.look_inside(rig, "several", "second").environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"


def test_a_pod_that_fits_no_card_waits_with_the_reason(rig: Rig) -> None:
    """Two cards of 15 hold 30, but no single card holds 16."""
    pods.create(rig, [pods.pod("too-large", units=16)])
    wait_for(
        "the reason in the pod's condition",
        lambda: "Insufficient GPU Memory in one device" in _condition(pods.get(rig, "too-large"), "PodScheduled"),
        seconds=30,
    )


def test_a_pod_whose_memory_does_not_divide_among_its_cards_is_told_what_to_ask_for(rig: Rig) -> None:
    wanted = pods.pod("count", units=3)
    wanted["metadata"]["labels"] = {"aliyun.com/gpu-count": "2"}
    pods.create(rig, [wanted])
    wait_for(
        "the reason in the pod's condition",
        lambda: "ask for 2 or 4 units" in _condition(pods.get(rig, "count"), "PodScheduled"),
        seconds=30,
    )


def test_the_shipped_example_runs(rig: Rig) -> None:
    rig.apply(Path(__file__).parents[2] / "examples" / "gpushare.yaml")
    pods.wait_running(rig, ["binpack-1"])
    assert findings(pods.observe(rig), ["default/binpack-1"]) == []


def test_a_container_that_is_started_again_gets_the_same_card(rig: Rig) -> None:
    wanted = pods.pod("again", units=3)
    wanted["spec"]["containers"][0]["command"] = ["sh", "-c", "trap 'exit 1' TERM; sleep 3600 & wait"]
    pods.create(rig, [wanted])
    pods.wait_running(rig, ["again"])
    before = pods.look_inside(rig, "again")
    pods.restart(rig, "again")
    assert pods.look_inside(rig, "again") == before


def test_a_forged_placement_cannot_over_commit_a_card(rig: Rig) -> None:
    """A user with a fixed nodeName and a record of their own: it claims to hold nothing, and asks for a full card."""
    pods.create(rig, [pods.pod(f"honest-{number}", units=8) for number in range(2)])
    pods.wait_running(rig, ["honest-0", "honest-1"])
    part = {"uuid": rig.nvml.gpus[0].uuid, "index": 0, "minor": 0, "cores": 0, "mib": 0}
    record = {"v": 1, "node": rig.node_name, "dialect": "gpushare", "containers": {"main": [part]}}
    forged = pods.pod("forged", units=10, nodeName=rig.node_name)
    forged["metadata"]["annotations"] = {"aliquot.io/placement": json.dumps(record)}
    pods.create(rig, [forged])
    wait_for("the refusal in the pod's status", lambda: "over-commit" in _waiting(rig, "forged"), seconds=60)


def test_a_pod_that_went_past_the_scheduler_gets_no_card_before_it_is_placed_late(rig: Rig, aliquot: Aliquot) -> None:
    """kubelet's counters would let it run; without a placement it gets nothing, and its status says why."""
    aliquot.server.stop()
    pods.create(rig, [pods.pod("smuggled", units=3, nodeName=rig.node_name)])
    wait_for("the refusal in the pod's status", lambda: "without a placement" in _waiting(rig, "smuggled"), seconds=60)
    assert pods.get(rig, "smuggled")["status"]["phase"] == "Pending"
    aliquot.start_server()
    pods.wait_running(rig, ["smuggled"])
    assert findings(pods.observe(rig), ["default/smuggled"]) == []
    events = ("get", "events", "--field-selector=involvedObject.name=smuggled")
    wait_for("the event", lambda: "PlacedLate" in rig.kubectl(*events), seconds=30)


def test_a_finished_pods_part_is_given_to_the_next(rig: Rig) -> None:
    wide = [pods.pod(f"wide-{number}", units=15) for number in range(2)]
    pods.create(rig, wide)
    pods.wait_running(rig, ["wide-0", "wide-1"])
    pods.create(rig, [pods.pod("next", units=15)])
    rig.kubectl("delete", "pod", "wide-0", "--wait=true")
    # kube-scheduler asks again within milliseconds of the deletion, perhaps before our informer has seen it; until
    # Aliquot wakes waiting pods itself, a touch of the pod makes it ask once more
    rig.kubectl("annotate", "pod", "next", "tests/touched=yes")
    pods.wait_running(rig, ["next"])
    assert findings(pods.observe(rig), ["default/next", "default/wide-1"]) == []


async def test_the_card_of_a_pod_deleted_by_force_is_handed_over_when_its_containers_have_ended(
    rig: Rig, aliquot: Aliquot
) -> None:
    """kubelet forgets the pod at once, while its container, which hears no signal, is still ending."""
    stubborn = pods.pod("stubborn", units=15, terminationGracePeriodSeconds=40)
    stubborn["spec"]["containers"][0]["command"] = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]
    pods.create(rig, [stubborn, pods.pod("other", units=15)])
    pods.wait_running(rig, ["stubborn", "other"])
    uid = pods.get(rig, "stubborn")["metadata"]["uid"]
    assert uid in await runtime.running(rig.containerd_socket)
    rig.kubectl("delete", "pod", "stubborn", "--grace-period=0", "--force")
    pods.create(rig, [pods.pod("successor", units=15)])
    handed_over = '"pod": "default/successor"'
    wait_for("the hand-over", lambda: handed_over in aliquot.agent.log.read_text(), seconds=120, every=0.02)
    assert uid not in await runtime.running(rig.containerd_socket)
    pods.wait_running(rig, ["successor"])
    assert findings(pods.observe(rig), ["default/successor", "default/other"]) == []


@pytest.fixture
def policies(rig: Rig) -> Iterator[None]:
    """The shipped admission policies."""
    path = Path(__file__).parents[2] / "deploy" / "policies.yaml"
    rig.apply(path)
    yield
    rig.kubectl("delete", "-f", str(path))


@pytest.mark.usefixtures("policies")
def test_under_the_policies_server_and_agent_write_what_they_must(rig: Rig, aliquot: Aliquot) -> None:
    def refused() -> bool:
        who = ("--as=system:serviceaccount:aliquot-system:aliquot-agent", "--as-group=system:masters")
        told = ("annotate", "node", rig.node_name, "a=b", "--dry-run=server", *who)
        return rig.kubectl(*told, check=False) == ""

    wait_for("the policies to count", refused, seconds=30)
    pods.create(rig, [pods.pod("plain")])
    pods.wait_running(rig, ["plain"])
    assert pods.get(rig, "plain")["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    aliquot.server.stop()
    pods.create(rig, [pods.pod("late", nodeName=rig.node_name)])
    aliquot.start_server()
    pods.wait_running(rig, ["late"])
    rig.kubectl("annotate", "node", rig.node_name, "aliquot.io/inventory-")
    inventory = ("get", "node", rig.node_name, "--output", "jsonpath={.metadata.annotations.aliquot\\.io/inventory}")
    wait_for("the inventory to be written again", lambda: rig.kubectl(*inventory), seconds=30)
    assert findings(pods.observe(rig), ["default/plain", "default/late"]) == []


def test_server_and_agent_have_no_more_rights_than_they_use(rig: Rig) -> None:
    questions = {
        ("aliquot-server", "create", "pods", "binding"): True,
        ("aliquot-server", "patch", "pods", ""): True,
        ("aliquot-server", "delete", "pods", ""): False,
        ("aliquot-server", "get", "secrets", ""): False,
        ("aliquot-agent", "patch", "nodes", ""): True,
        ("aliquot-agent", "patch", "nodes", "status"): True,
        ("aliquot-agent", "update", "nodes", ""): False,
        ("aliquot-agent", "delete", "pods", ""): False,
        ("aliquot-agent", "create", "pods", "binding"): False,
    }
    answers = {}
    for account, verb, resource, part in questions:
        identity = f"--as=system:serviceaccount:aliquot-system:{account}"
        words = ["auth", "can-i", verb, resource, f"--subresource={part}", identity]
        answers[account, verb, resource, part] = rig.kubectl(*words, check=False).strip() == "yes"
    assert answers == questions


def _condition(pod: dict[str, Any], kind: str) -> str:
    texts = [c.get("message", "") for c in pod["status"].get("conditions", []) if c["type"] == kind]
    return "".join(texts)


def _waiting(rig: Rig, name: str) -> str:
    statuses = pods.get(rig, name)["status"].get("containerStatuses", [])
    return "".join(status["state"].get("waiting", {}).get("message", "") for status in statuses)

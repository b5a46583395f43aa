"""A node that NVIDIA's plugin serves: our agent names its cards and who has them, and Aliquot promises nothing that the
plugin may break."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e import left_behind, pods
from tests.e2e.test_taking_over import served_by, wait_offered
from tests.rig import Rig
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

MODEL = "nvidia.com/gpu.model"
OTHER_MODEL = "NVIDIA A10"
REASON = "another device plugin chooses the node's GPUs and cannot promise those that the pod asks for"


@pytest.fixture
def two_models(rig: Rig, aliquot: Aliquot) -> Iterator[list[str]]:
    """The two models of the node's cards. NVIDIA's plugin offers them, and our agent observes."""
    before = rig.nvml.gpus[1].model
    aliquot.agent.stop()
    rig.nvml.change(1, model=OTHER_MODEL)
    rig.kubectl("label", "node", rig.node_name, "aliquot.io/observed=true")
    rig.restart_scheduler(aliquot.scheduler_config("native"))
    with served_by(rig, left_behind.NVIDIA, 0):
        aliquot.start_agent_by_labels()
        yield [before, OTHER_MODEL]
        pods.delete_all(rig)
    rig.kubectl("label", "node", rig.node_name, "aliquot.io/observed-")
    rig.nvml.change(1, model=before)
    aliquot.serve(GPUSHARE, "gpushare")


def test_pods_share_a_node_with_nvidias_plugin_and_get_no_empty_promise(rig: Rig, two_models: list[str]) -> None:
    wait_for("the inventory", lambda: _published(rig) == (True, two_models), seconds=30, every=0.3)
    wait_offered(rig, {pods.GPU_MEM: 0})

    pods.create(rig, [_pod("any")])
    pods.wait_running(rig, ["any"])
    taken = _recorded(rig, "any")

    pods.create(rig, [_pod("picky", models=two_models[0])])
    wait_for("the reason of the refusal", lambda: REASON in _refusals(rig, "picky"), seconds=30, every=0.3)
    assert "nodeName" not in pods.get(rig, "picky")["spec"]

    pods.create(rig, [_pod("either", models=",".join(two_models))])
    pods.wait_running(rig, ["either"])
    assert {taken, _recorded(rig, "either")} == {gpu.uuid for gpu in rig.nvml.gpus}


def _pod(name: str, models: str = "") -> dict[str, object]:
    made = pods.pod(name, limits=left_behind.NVIDIA.limits)
    made["metadata"]["annotations"] = {MODEL: models} if models else {}
    return made


def _published(rig: Rig) -> tuple[bool, list[str]]:
    """Whether the inventory calls the node observed, and the models of its cards."""
    node = json.loads(rig.kubectl("get", "node", rig.node_name, "--output=json"))
    inventory = json.loads(node["metadata"]["annotations"]["aliquot.io/inventory"])
    return inventory.get("observed", False), [gpu["model"] for gpu in inventory["gpus"]]


def _recorded(rig: Rig, name: str) -> str:
    """The card that our agent records on the pod: the one that its container sees. Nobody has promised one."""

    def annotations() -> dict[str, str]:
        found: dict[str, str] = pods.get(rig, name)["metadata"].get("annotations", {})
        return found

    wait_for(f"the card of {name}", lambda: "aliquot.io/observed" in annotations(), seconds=30, every=0.3)
    card = pods.look_inside(rig, name).environment[left_behind.VISIBLE]
    assert json.loads(annotations()["aliquot.io/observed"])["containers"] == {"main": [card]}
    assert "aliquot.io/placement" not in annotations()
    return card


def _refusals(rig: Rig, name: str) -> str:
    selector = f"--field-selector=involvedObject.name={name},reason=FailedScheduling"
    return rig.kubectl("get", "events", selector, "--output=jsonpath={.items[*].message}")

"""The node reboots, or its agent is dead while kubelet restarts: nobody ends up on a wrong card, and every part that
kubelet takes from a pod is given to the pod that replaces it."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.checker import findings
from tests.e2e import pods
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot", "deployments")]


@pytest.fixture
def deployments(rig: Rig, aliquot: Aliquot) -> Iterator[None]:
    """Without Deployments, and with a node that works, after each test."""
    yield
    rig.kubectl("delete", "deployments", "--all", "--namespace=default", "--wait=true")
    if not rig.kubelet.process.running:
        rig.power_on()
    if not aliquot.agent.running:
        aliquot.start_agent()


def deploy(rig: Rig, name: str, replicas: int, pod: dict[str, Any]) -> list[str]:
    """A Deployment of pods like this one. Returns their names when all of them run."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    rig.kubectl("create", "-f", "-", input=json.dumps(deployment))
    return wait_replaced(rig, name, replicas, [])


def wait_replaced(rig: Rig, name: str, replicas: int, old: list[str]) -> list[str]:
    def running() -> list[str]:
        listed = json.loads(rig.kubectl("get", "pods", f"--selector=app={name}", "--output=json"))["items"]
        found = [pod["metadata"]["name"] for pod in listed if pod["status"]["phase"] == "Running"]
        return [each for each in found if each not in old] if len(set(found) - set(old)) == replicas else []

    return wait_for(f"{replicas} pods of {name} to run", running, seconds=120, every=0.3)


def wait_failed(rig: Rig, names: list[str]) -> None:
    """Wait until kubelet has failed these pods, and said why."""

    def told() -> bool:
        statuses = [pods.get(rig, name)["status"] for name in names]
        return all(status.get("reason") == "UnexpectedAdmissionError" for status in statuses)

    wait_for("kubelet to fail the pods", told, seconds=60, every=0.3)
    for name in names:
        assert "aliyun.com/gpu-mem" in pods.get(rig, name)["status"]["message"]


def test_after_a_reboot_pods_are_replaced_and_their_parts_given_to_the_new_ones(rig: Rig, aliquot: Aliquot) -> None:
    """kubelet starts before the agent, and refuses to admit a pod whose ids no device plugin offers."""
    before = deploy(rig, "whole", 2, pods.pod("", units=15))
    aliquot.agent.kill()
    rig.power_off()
    rig.power_on()
    wait_failed(rig, before)
    aliquot.start_agent()
    after = wait_replaced(rig, "whole", 2, before)
    assert findings(pods.observe(rig), [f"default/{name}" for name in after]) == []


def test_a_container_that_starts_again_finds_its_card_though_every_spec_is_lost(rig: Rig, aliquot: Aliquot) -> None:
    pods.create(rig, [pods.pod("again", units=3)])
    pods.wait_running(rig, ["again"])
    before = pods.look_inside(rig, "again")
    aliquot.agent.kill()
    for spec in rig.cdi_folder.iterdir():
        spec.unlink()
    aliquot.start_agent()
    pods.restart(rig, "again")
    assert pods.look_inside(rig, "again") == before


def test_what_kubelet_fails_while_the_agent_is_dead_is_replaced_and_what_runs_goes_on(
    rig: Rig, aliquot: Aliquot
) -> None:
    """kubelet admits a pod again whose finished init container has ids, and finds no device plugin that offers them."""
    pods.create(rig, [pods.pod("runs", units=15)])
    pods.wait_running(rig, ["runs"])
    with_init = pods.pod("", units=15)
    (main,) = with_init["spec"]["containers"]
    with_init["spec"]["initContainers"] = [{**main, "name": "first", "command": ["true"]}]
    before = deploy(rig, "begun", 1, with_init)
    container = pods.get(rig, "runs")["status"]["containerStatuses"][0]["containerID"]
    aliquot.agent.kill()
    rig.kubelet.restart()
    wait_failed(rig, before)
    aliquot.start_agent()
    (after,) = wait_replaced(rig, "begun", 1, before)
    assert pods.get(rig, "runs")["status"]["containerStatuses"][0]["containerID"] == container
    assert findings(pods.observe(rig), [f"default/{name}" for name in ("runs", after)]) == []


LONGEST_GAP = 10.0
"""How many seconds a node may be without its agent in an update. It takes 2 to 3 on an idle machine."""


def test_an_update_of_the_agent_leaves_a_gap_of_seconds_in_which_new_pods_wait(rig: Rig, aliquot: Aliquot) -> None:
    pods.create(rig, [pods.pod("before")])
    pods.wait_running(rig, ["before"])
    container = pods.get(rig, "before")["status"]["containerStatuses"][0]["containerID"]
    aliquot.agent.stop()
    wait_for("the scheduler to see that no card is offered", lambda: _offered(rig) == "0", seconds=30, every=0.3)
    pods.create(rig, [pods.pod("meanwhile")])
    aliquot.start_agent()
    pods.wait_running(rig, ["before", "meanwhile"])
    assert pods.get(rig, "before")["status"]["containerStatuses"][0]["containerID"] == container

    aliquot.agent.stop()
    aliquot.start_agent()
    gap = _seconds_between(aliquot.agent.log.read_text(), "stopping", "registered with kubelet")
    print(f"an update of the agent takes {gap:.1f} s")
    assert gap < LONGEST_GAP


def _offered(rig: Rig) -> str:
    path = "jsonpath={.status.allocatable.aliyun\\.com/gpu-mem}"
    return rig.kubectl("get", "node", rig.node_name, "--output", path)


def _seconds_between(log: str, first: str, last: str) -> float:
    """Between the last lines in a log with these events."""
    times = {
        event: datetime.fromisoformat(re.findall(rf'"event": "{event}".*"timestamp": "([^"]+)"', log)[-1])
        for event in (first, last)
    }
    return (times[last] - times[first]).total_seconds()

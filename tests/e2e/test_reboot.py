"""The node reboots, or its agent is dead while kubelet restarts: nobody ends up on a wrong card, and every part that
kubelet takes from a pod is given to the pod that replaces it."""

import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.checker import findings
from tests.e2e import deployments, pods
from tests.rig import Rig
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot", "a_node_that_works")]


@pytest.fixture
def a_node_that_works(rig: Rig, aliquot: Aliquot) -> Iterator[None]:
    """Without Deployments, and with a node that works, after each test."""
    yield
    deployments.delete_all(rig)
    if not rig.kubelet.process.running:
        rig.power_on()
    if not aliquot.agent.running:
        aliquot.start_agent()


def test_after_a_reboot_pods_are_replaced_and_their_parts_given_to_the_new_ones(rig: Rig, aliquot: Aliquot) -> None:
    """kubelet starts before the agent, and refuses to admit a pod whose ids no device plugin offers."""
    before = deployments.create(rig, "whole", 2, pods.pod("", units=15))
    aliquot.agent.kill()
    rig.power_off()
    rig.power_on()
    deployments.wait_failed(rig, before)
    aliquot.start_agent()
    after = deployments.wait_replaced(rig, "whole", 2, before)
    assert findings(pods.observe(rig), [f"default/{name}" for name in after]) == []


OTHER_DIALECTS = {
    "tencent": pods.pod("", limits={"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"}),
    "elastic": pods.pod("", limits={"elasticgpu.io/gpu-core": "20", "elasticgpu.io/gpu-memory": "1024"}),
    "native": pods.pod("", limits={"aliquot.io/gpu": "1"}),
    "nvidia": pods.pod("", limits={"nvidia.com/gpu": "1"}),
}
OTHER_DIALECTS["native"]["metadata"]["annotations"] = {"aliquot.io/cores": "20"}


@pytest.fixture
def all_dialects(aliquot: Aliquot) -> Iterator[Aliquot]:
    aliquot.serve(("gpushare", "tencent", "elastic", "keti", "nvidia", "aliquot"), "native")
    yield aliquot
    if not aliquot.agent.running:
        aliquot.start_agent()
    aliquot.serve(GPUSHARE, "gpushare")


def test_after_a_reboot_pods_of_other_dialects_are_back_on_their_cards_or_are_replaced(
    rig: Rig, all_dialects: Aliquot
) -> None:
    """Twice: kubelet starts before the agent, then the agent before kubelet."""
    before = [name for each, pod in OTHER_DIALECTS.items() for name in deployments.create(rig, each, 1, pod)]
    all_dialects.agent.kill()
    rig.power_off()
    rig.power_on()
    deployments.wait_failed(rig, before)
    all_dialects.start_agent()
    between = {each: deployments.wait_replaced(rig, each, 1, before) for each in OTHER_DIALECTS}
    cards = {name: pods.cards_of(rig, name) for names in between.values() for name in names}

    ended = {each: deployments.containers(rig, each) for each in OTHER_DIALECTS}
    all_dialects.agent.kill()
    rig.power_off()
    registered = all_dialects.registrations()
    all_dialects.agent.start()
    rig.power_on()
    all_dialects.wait_registered(registered)
    after = {each: deployments.wait_back_or_replaced(rig, each, old) for each, old in ended.items()}
    cards_now = {name: pods.cards_of(rig, name) for names in after.values() for name in names}
    back = cards_now.keys() & cards.keys()
    assert {name: cards_now[name] for name in back} == {name: cards[name] for name in back}
    whole = after["nvidia"][0]
    assert all(cards_now[whole] != found for name, found in cards_now.items() if name != whole)


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
    before = deployments.create(rig, "begun", 1, with_init)
    container = pods.get(rig, "runs")["status"]["containerStatuses"][0]["containerID"]
    aliquot.agent.kill()
    rig.kubelet.restart()
    deployments.wait_failed(rig, before)
    aliquot.start_agent()
    (after,) = deployments.wait_replaced(rig, "begun", 1, before)
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

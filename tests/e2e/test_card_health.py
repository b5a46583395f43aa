"""Cards that fail and return on a real node: what kubelet, the scheduler and people see, and that others go on."""

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e import pods
from tests.rig import Rig, devices
from tests.rig.aliquot import Aliquot
from tests.rig.nvml import Gpu
from tests.rig.waiting import wait_for

pytestmark = pytest.mark.e2e

WHOLE = 15
"""Units of a card."""


class Node:
    """The rig's node with two cards."""

    def __init__(self, rig: Rig, aliquot: Aliquot) -> None:
        self.rig = rig
        self.uuids = [gpu.uuid for gpu in rig.nvml.gpus]
        self.aliquot = aliquot

    def shown(self) -> Any:
        return json.loads(self.rig.kubectl("get", "node", self.rig.node_name, "--output=json"))

    def cards(self) -> list[tuple[bool, bool]]:
        """Whether each card of the inventory is healthy and cordoned."""
        gpus = json.loads(self.shown()["metadata"]["annotations"]["aliquot.io/inventory"])["gpus"]
        return [(gpu.get("healthy", True), gpu.get("cordoned", False)) for gpu in gpus]

    def condition(self, kind: str = "AliquotCardsHealthy") -> tuple[str, str]:
        found = {c["type"]: (c["status"], c["reason"]) for c in self.shown()["status"]["conditions"]}
        return found.get(kind, ("", ""))

    def complains_of(self, text: str) -> bool:
        """Whether the condition says that."""
        found = {c["type"]: c["message"] for c in self.shown()["status"]["conditions"]}
        return text in found["AliquotCardsHealthy"]

    def allocatable(self) -> list[str]:
        allocatable = self.shown()["status"]["allocatable"]
        return [allocatable["aliyun.com/gpu-mem"], allocatable["aliyun.com/gpu-count"]]

    def metric(self, name: str, uuid: str, **labels: str) -> float:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{self.aliquot.agent_url}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'uuid="{uuid}"', *(f'{label}="{value}"' for label, value in labels.items())]
        found = [line for line in lines if line.startswith(f"{name}{{") and all(part in line for part in wanted)]
        return float(found[0].split()[-1]) if found else 0.0

    def events(self, name: str) -> list[str]:
        """The reasons of the agent's events about an object."""
        selector = f"--field-selector=involvedObject.name={name}"
        items = json.loads(self.rig.kubectl("get", "events", selector, "--output=json"))["items"]
        return [item["reason"] for item in items if item["source"].get("component") == "aliquot-agent"]

    def say(self, card: int, word: str) -> None:
        """A person cordons a card (`=true`), says that it is good (`=false`), or takes that back (`-`)."""
        key = f"cordon.aliquot.io/{self.uuids[card]}{word}"
        self.rig.kubectl("annotate", "node", self.rig.node_name, key, *(["--overwrite"] if word != "-" else []))

    def wait(self, what: str, cards: list[tuple[bool, bool]], condition: tuple[str, str]) -> None:
        wait_for(what, lambda: (self.cards(), self.condition()) == (cards, condition), seconds=40, every=0.3)


GOOD = [(True, False), (True, False)], ("True", "CardsHealthy")


@pytest.fixture
def node(rig: Rig, aliquot: Aliquot) -> Iterator[Node]:
    made = Node(rig, aliquot)
    made.wait("both cards to be good", *GOOD)
    before = rig.nvml.gpus
    yield made
    rig.nvml.replace_gpus(before)
    for card in range(2):
        made.say(card, "=false")
    made.wait("both cards to be good again", *GOOD)
    for card in range(2):
        made.say(card, "-")


def test_a_node_tells_how_busy_its_cards_are_and_that_nobody_gets_them_unasked(rig: Rig, node: Node) -> None:
    rig.nvml.change(1, util=42, watts=71)
    wait_for(
        "the usage to be shown",
        lambda: node.metric("aliquot_card_cores_busy_ratio", node.uuids[1]) == 0.42,
        seconds=40,
        every=0.3,
    )
    assert [node.metric("aliquot_card_power_watts", uuid) for uuid in node.uuids] == [30, 71]
    rig.nvml.change(1, util=0, watts=30)
    assert node.condition("AliquotCardsGuarded") == ("True", "CardsGuarded")


def _card_of(rig: Rig, name: str) -> str:
    return pods.look_inside(rig, name).environment["NVIDIA_VISIBLE_DEVICES"]


def _restarts(rig: Rig, name: str) -> int:
    """How often the pod's container was started again, and runs."""
    (status,) = pods.get(rig, name)["status"]["containerStatuses"]
    return int(status["restartCount"]) if "running" in status["state"] else 0


def test_a_lost_card_takes_nobody_with_it_and_returns_without_a_restart(node: Node) -> None:
    """The pods may hold ids of either card: kubelet gives them out as it likes. It counts the pod on the lost card
    against the card that is left, until somebody deletes it."""
    rig = node.rig
    pods.create(rig, [pods.pod("first", units=8), pods.pod("second", units=8)])
    pods.wait_running(rig, ["first", "second"])
    on = {_card_of(rig, name): name for name in ("first", "second")}
    (hit, other), (lost, kept) = (on[uuid] for uuid in node.uuids), node.uuids

    rig.nvml.change(0, state="lost")
    node.wait("the lost card to be told", [(False, False), (True, False)], ("False", "CardsUnhealthy"))
    wait_for("kubelet to offer one card", lambda: node.allocatable() == ["15", "1"], seconds=30, every=0.3)
    assert (node.metric("aliquot_card_healthy", lost), node.metric("aliquot_card_healthy", kept)) == (0.0, 1.0)
    assert node.events(hit) == ["CardUnhealthy"]
    assert node.events(other) == []

    registered = node.aliquot.registrations()
    rig.kubelet.restart()
    wait_for("the agent to register again", lambda: node.aliquot.registrations() >= registered + 2, seconds=30)
    hello = ("exec", other, "--", "echo", "here")
    wait_for("kubelet to reach containers", lambda: rig.kubectl(*hello, check=False), seconds=30, every=0.3)
    wait_for("kubelet to offer that card again", lambda: node.allocatable() == ["15", "1"], seconds=30, every=0.3)
    rig.kubectl("exec", other, "--", "kill", "1", check=False)  # it ends with the container
    wait_for("the container beside to start again", lambda: _restarts(rig, other) == 1, seconds=60, every=0.3)
    assert _card_of(rig, other) == kept

    rig.kubectl("delete", "pod", hit, "--grace-period=1")
    pods.create(rig, [pods.pod("third", units=7)])
    pods.wait_running(rig, ["third"])
    assert _card_of(rig, "third") == kept

    rig.nvml.report_xid(0, 79)
    wait_for(
        "the XID error to be counted",
        lambda: node.metric("aliquot_xid_errors_total", lost, xid="79") == 1,
        seconds=20,
        every=0.3,
    )
    rig.nvml.change(0, state="ok")
    node.wait("the card to be back: it was reset, so its error is over", *GOOD)
    wait_for("kubelet to offer both cards", lambda: node.allocatable() == ["30", "2"], seconds=30, every=0.3)
    assert node.events(rig.node_name)[-2:] == ["CardUnhealthy", "CardHealthy"]
    assert {pods.get(rig, name)["status"]["phase"] for name in (other, "third")} == {"Running"}


def test_a_card_that_hangs_is_unhealthy_until_it_answers(node: Node) -> None:
    node.rig.nvml.change(1, state="hang")
    node.wait("the hanging card to be told", [(True, False), (False, False)], ("False", "CardsUnhealthy"))
    pods.create(node.rig, [pods.pod("beside", units=WHOLE)])
    pods.wait_running(node.rig, ["beside"])
    assert _card_of(node.rig, "beside") == node.uuids[0]
    node.rig.nvml.change(1, state="ok")
    node.wait("the card to answer again", *GOOD)


FAULTS = [
    ({"celsius": 97, "shutdown_celsius": 96}, "it has 97 degrees Celsius and shuts down at 96"),
    (
        {"rows_failed": 1, "rows_pending": 0, "ecc_errors": 3},
        "a broken row of its memory could not be replaced; 3 uncorrected ECC errors",
    ),
    ({"pages": 64}, "64 pages of its memory are broken"),
    ({"recovery": 1}, "the driver asks to reset it"),
]
"""What NVML tells of a card, and what the agent makes of it."""


def test_a_hot_or_broken_card_gets_no_pod_until_it_is_good_again(node: Node) -> None:
    """One card after the other: when the next one fails, the last one is good."""
    rig, good = node.rig, node.rig.nvml.gpus
    for number, (readings, why) in enumerate(FAULTS):
        bad = number % 2
        rig.nvml.replace_gpus(good)
        rig.nvml.change(bad, **readings)
        states = [(card != bad, False) for card in range(2)]
        node.wait(f"the fault to be told: {why}", states, ("False", "CardsUnhealthy"))
        wait_for("the reason", partial(node.complains_of, why), seconds=20, every=0.3)
        name = f"beside-{number}"
        pods.create(rig, [pods.pod(name, units=WHOLE)])
        pods.wait_running(rig, [name])
        assert _card_of(rig, name) == node.uuids[1 - bad]
        rig.kubectl("delete", "pod", name, "--grace-period=1")


@pytest.fixture
def slot(node: Node) -> Iterator[Gpu]:
    """A card that can be plugged in. Only another agent forgets a card."""
    rig = node.rig
    card = Gpu("GPU-00000000-0000-4000-8000-000000000002", 2)
    before = rig.nvml.gpus
    path = devices.add_card(rig.dev_folder, card.minor)
    yield card
    path.unlink()
    node.aliquot.agent.stop()
    rig.nvml.replace_gpus(before)
    node.aliquot.start_agent()
    node.wait("the two cards", *GOOD)


def test_a_card_that_is_plugged_in_serves_a_pod_and_takes_nobody_with_it_when_it_is_pulled_out(
    node: Node, slot: Gpu
) -> None:
    rig, before = node.rig, node.rig.nvml.gpus
    pods.create(rig, [pods.pod(name, units=WHOLE) for name in ("first", "second")])
    pods.wait_running(rig, ["first", "second"])
    pods.create(rig, [pods.pod("third", units=WHOLE)])
    rig.nvml.replace_gpus([*before, slot])
    pods.wait_running(rig, ["third"])
    seen = pods.look_inside(rig, "third")
    assert seen.environment["NVIDIA_VISIBLE_DEVICES"] == slot.uuid
    assert "/dev/nvidia2" in seen.devices
    wait_for("kubelet to offer three cards", lambda: node.allocatable() == ["45", "3"], seconds=30, every=0.3)
    assert node.cards() == [(True, False)] * 3

    rig.nvml.replace_gpus(before)
    node.wait("the card to be missed", [(True, False), (True, False), (False, False)], ("False", "CardsUnhealthy"))
    wait_for("kubelet to offer two cards", lambda: node.allocatable() == ["30", "2"], seconds=30, every=0.3)
    wait_for("the pod to be told", lambda: node.events("third") == ["CardUnhealthy"], seconds=20, every=0.3)
    pods.restart(rig, "first")
    assert {pods.get(rig, name)["status"]["phase"] for name in ("first", "second", "third")} == {"Running"}


def test_xid_errors_cordon_or_drain_a_card_until_a_person_says_that_it_is_good(node: Node) -> None:
    rig = node.rig
    rig.nvml.report_xid(0, 31)
    rig.nvml.report_xid(0, 74)
    node.wait("XID 74 to cordon the card", [(True, True), (True, False)], ("True", "CardsCordoned"))
    rig.nvml.report_xid(0, 48)
    node.wait("XID 48 to drain it", [(False, False), (True, False)], ("False", "CardsUnhealthy"))
    assert node.metric("aliquot_xid_errors_total", node.uuids[0], xid="31") == 1
    node.say(0, "=false")
    node.wait("the person to be believed", *GOOD)


def test_a_person_cordons_and_uncordons_a_card(node: Node) -> None:
    rig = node.rig
    node.say(0, "=true")
    node.wait("the cordon to be told", GOOD[0], ("True", "CardsCordoned"))
    assert node.metric("aliquot_card_cordoned", node.uuids[0]) == 1
    pods.create(rig, [pods.pod("one", units=WHOLE)])
    pods.wait_running(rig, ["one"])
    assert _card_of(rig, "one") == node.uuids[1]
    pods.create(rig, [pods.pod("two", units=WHOLE)])
    wait_for(
        "the reason in the pod's condition",
        lambda: "Insufficient GPU Memory in one device" in json.dumps(pods.get(rig, "two")["status"]),
        seconds=20,
    )
    node.say(0, "-")
    pods.wait_running(rig, ["two"])
    assert _card_of(rig, "two") == node.uuids[0]

"""XID errors: of which card or MIG instance they are, and that they go on after the driver restarts."""

from concurrent.futures import wait
from pathlib import Path

import pynvml
import pytest
from structlog.testing import capture_logs

from aliquot.agent.nvidia import NvidiaDevices, XidEvent
from aliquot.agent.nvidia.session import Session
from aliquot.agent.off_loop import start
from tests.fakes.nvml import NO_INSTANCE, FakeCard, FakeInstance, FakeNvml


class Node:
    """Two cards that the agent has read; the second has MIG instances."""

    def __init__(self, root: Path) -> None:
        self.whole = FakeCard("GPU-a", bus=1)
        instances = [FakeInstance("MIG-1", 9), FakeInstance("MIG-2", 2), FakeInstance("MIG-3", 2, compute_instance=1)]
        self.cut = FakeCard("GPU-b", minor=1, bus=2, mig=True, instances=list(instances))
        self.nvml = FakeNvml(self.whole, self.cut)
        self.source = NvidiaDevices(root, nvml=self.nvml, proc=root, sysfs=root, wait=self.nvml.wait)

    def wait(self) -> list[XidEvent]:
        return list(self.source.wait_for_events(0))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.source.read()
    return made


def test_events_that_come_together_are_told_together(node: Node) -> None:
    node.nvml.report(node.whole, 48)
    node.nvml.report(node.cut, 79)
    assert node.wait() == [XidEvent("GPU-a", 48), XidEvent("GPU-b", 79)]
    assert node.wait() == []
    assert node.nvml.registered == {0: ["GPU-a", "GPU-b"]}


def test_events_without_end_are_told_in_parts(node: Node) -> None:
    for _ in range(250):
        node.nvml.report(node.whole, 31)
    assert [len(node.wait()) for _ in range(4)] == [100, 100, 50, 0]


@pytest.mark.parametrize(
    ("instance", "uuids"),
    [
        ((NO_INSTANCE, NO_INSTANCE), ["GPU-b"]),
        ((9, 0), ["MIG-1"]),
        ((9, NO_INSTANCE), ["MIG-1"]),
        ((2, 1), ["MIG-3"]),
        ((2, NO_INSTANCE), ["MIG-2", "MIG-3"]),
        ((7, 0), ["GPU-b"]),
    ],
)
def test_an_event_of_an_instance_is_about_the_instance_if_it_is_known(
    node: Node, instance: tuple[int, int], uuids: list[str]
) -> None:
    node.nvml.report(node.cut, 94, instance)
    assert node.wait() == [XidEvent(uuid, 94) for uuid in uuids]


def test_the_event_of_a_lost_card_is_told_although_the_card_answers_nothing(node: Node) -> None:
    assert node.wait() == []
    node.nvml.report(node.whole, 79)
    node.whole.error = node.nvml.event_error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert node.wait() == [XidEvent("GPU-a", 79)]


def test_an_event_with_another_handle_of_a_card_is_about_that_card(node: Node) -> None:
    node.nvml.report(node.whole, 48, by_other_handle=True)
    node.nvml.report(node.cut, 94, (9, 0), by_other_handle=True)
    assert node.wait() == [XidEvent("GPU-a", 48), XidEvent("MIG-1", 94)]


def test_an_event_of_nobody_known_is_told_without_a_card(node: Node) -> None:
    assert node.wait() == []
    node.nvml.report(node.whole, 79, by_other_handle=True)
    node.whole.error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert node.wait() == [XidEvent("", 79)]


def test_a_card_that_cannot_report_is_named_once_and_the_others_report(node: Node) -> None:
    node.whole.has_events = False
    with capture_logs() as told:
        node.nvml.report(node.cut, 48)
        assert node.wait() == [XidEvent("GPU-b", 48)]
        node.nvml.restart_driver()
        node.source.read()
        assert node.wait() == []
    assert [line["uuid"] for line in told if "uuid" in line] == ["GPU-a"]


def test_a_driver_that_does_not_tell_what_it_supports_is_tried(node: Node) -> None:
    node.nvml.errors["nvmlDeviceGetSupportedEventTypes"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    node.whole.has_events = False
    node.nvml.report(node.cut, 48)
    assert node.wait() == [XidEvent("GPU-b", 48)]


def test_a_card_that_appears_joins_the_others(node: Node) -> None:
    node.wait()
    node.nvml.cards.append(FakeCard("GPU-c", bus=3))
    node.source.read()
    node.nvml.report(node.nvml.cards[2], 48)
    assert node.wait() == [XidEvent("GPU-c", 48)]
    assert node.nvml.registered == {0: ["GPU-a", "GPU-b", "GPU-c"]}


def test_a_lost_card_keeps_no_other_from_reporting(node: Node) -> None:
    node.whole.error = pynvml.NVML_ERROR_GPU_IS_LOST
    node.nvml.report(node.cut, 48)
    assert node.wait() == [XidEvent("GPU-b", 48)]


def test_after_a_failed_wait_a_new_set_is_used(node: Node) -> None:
    node.wait()
    node.nvml.event_error = pynvml.NVML_ERROR_GPU_IS_LOST
    assert node.wait() == []
    node.nvml.event_error = pynvml.NVML_SUCCESS
    node.nvml.report(node.cut, 48)
    assert node.wait() == [XidEvent("GPU-b", 48)]
    assert (node.nvml.freed, list(node.nvml.registered), node.nvml.sessions) == ([0], [0, 1], 1)


def test_the_wait_notices_a_restart_of_the_driver_and_goes_on_after_the_next_read(node: Node) -> None:
    node.wait()
    node.nvml.restart_driver()
    assert node.wait() == []
    node.nvml.report(node.cut, 48)
    assert node.wait() == [], "nobody has initialised NVML again"
    node.source.read()
    assert node.wait() == [XidEvent("GPU-b", 48)]
    assert (list(node.nvml.registered), node.nvml.sessions) == ([0, 1], 2)


def test_a_renewed_session_has_a_set_of_its_own(node: Node) -> None:
    node.wait()
    node.nvml.restart_driver()
    node.source.read()
    node.nvml.report(node.cut, 48)
    assert node.wait() == [XidEvent("GPU-b", 48)]
    assert node.nvml.registered == {0: ["GPU-a", "GPU-b"], 1: ["GPU-a", "GPU-b"]}


def test_before_the_first_read_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.wait() == []
    assert node.nvml.registered == {}


def test_nvml_is_not_initialised_again_while_somebody_waits_for_events(tmp_path: Path) -> None:
    nvml = FakeNvml()
    session = Session(nvml, tmp_path)
    session.open()
    with session.kept(0) as is_initialised:
        assert is_initialised
        session.distrust()
        renewal = start(session.open)
        assert not wait([renewal], timeout=0.05).done
        assert nvml.sessions == 1
    renewal.result(timeout=60)
    assert nvml.sessions == 2

"""Cards that hang, are lost, return and appear, and a driver that restarts: the other cards are read as usual."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
from structlog.testing import capture_logs

from aliquot.agent.devices import Machine, Usage
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.errors import BadConfig, NoDriver
from tests.fakes.nvml import FakeCard, FakeInstance, FakeNvml

LOST = pynvml.NVML_ERROR_GPU_IS_LOST


class Node:
    """Three cards and the agent's view of them."""

    def __init__(self, root: Path) -> None:
        self.a, self.b, self.c = (FakeCard(f"GPU-{name}", place, bus=place + 1) for place, name in enumerate("abc"))
        self.nvml = FakeNvml(self.a, self.b, self.c)
        self.proc = root / "proc"
        self.source = NvidiaDevices(root, nvml=self.nvml, proc=self.proc, sysfs=root, wait=self.nvml.wait)

    def read(self) -> Machine:
        return self.source.read()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def healthy(machine: Machine) -> dict[str, bool]:
    return {gpu.uuid: gpu.healthy for gpu in machine.gpus}


def numbered(machine: Machine) -> list[tuple[str, int]]:
    return [(gpu.uuid, gpu.index) for gpu in machine.gpus]


def test_a_hanging_card_keeps_its_last_values_and_stops_no_other(node: Node) -> None:
    before = node.read()
    node.b.hangs, node.c.mib = True, 40960
    machine = node.read()
    assert machine.faults == {"GPU-b": "it does not answer"}
    assert machine.gpus[1] == replace(before.gpus[1], healthy=False)
    assert (machine.gpus[0], machine.gpus[2].mib) == (before.gpus[0], 40960)
    node.nvml.release(node.b)
    assert node.read().faults == {}
    assert all(gpu.healthy for gpu in node.read().gpus)


@pytest.mark.parametrize("state", [{"hangs": True}, {"error": LOST}], ids=["hanging", "lost"])
def test_nobody_knows_the_usage_of_a_card_that_does_not_answer(node: Node, state: dict[str, Any]) -> None:
    node.b.mig, node.b.instances = True, [FakeInstance("MIG-1", 9)]
    assert node.read().usage.keys() == {"GPU-a", "GPU-b", "GPU-c", "MIG-1"}
    for name, value in state.items():
        setattr(node.b, name, value)
    node.a.util = 50
    assert node.read().usage == {"GPU-a": Usage(cores=0.5, memory_bytes=0), "GPU-c": Usage(memory_bytes=0)}
    node.b.error = pynvml.NVML_SUCCESS
    node.nvml.release(node.b)
    assert node.read().usage.keys() == {"GPU-a", "GPU-b", "GPU-c", "MIG-1"}


def test_a_hanging_card_is_not_asked_again_until_it_has_come_back(node: Node) -> None:
    node.read()
    node.b.hangs = True
    node.read()
    asked = node.nvml.calls.count("nvmlDeviceGetHandleByIndex GPU-b")
    assert healthy(node.read()) == {"GPU-a": True, "GPU-b": False, "GPU-c": True}
    assert node.nvml.calls.count("nvmlDeviceGetHandleByIndex GPU-b") == asked
    node.nvml.release(node.b)


def test_threads_that_hang_do_not_keep_the_process_alive(node: Node) -> None:
    node.a.hangs = True
    before = set(threading.enumerate())
    node.read()
    left = set(threading.enumerate()) - before
    assert left
    assert all(thread.daemon for thread in left)
    node.nvml.release(node.a)


@pytest.mark.parametrize(
    ("state", "why"),
    [({"hangs": True}, "it does not answer"), ({"error": LOST}, "GPU is lost")],
    ids=["hanging", "lost"],
)
def test_a_card_that_never_answered_is_left_out_and_named_once(node: Node, state: dict[str, Any], why: str) -> None:
    for name, value in state.items():
        setattr(node.a, name, value)
    with capture_logs() as told:
        assert numbered(node.read()) == [("GPU-b", 1), ("GPU-c", 2)]
        node.read()
    warnings = [line for line in told if line["log_level"] == "warning"]
    assert warnings == [
        {"event": "a card is left out until it answers", "index": 0, "why": why, "log_level": "warning"}
    ]
    node.a.error = pynvml.NVML_SUCCESS
    node.nvml.release(node.a)
    assert numbered(node.read()) == [("GPU-a", 0), ("GPU-b", 1), ("GPU-c", 2)]


def test_if_no_card_answers_there_is_nothing_to_serve(node: Node) -> None:
    for card in node.nvml.cards:
        card.error = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(NoDriver, match=r"no card of this node answers; .*card 0: Unknown Error; card 1: "):
        node.read()


@pytest.mark.parametrize("error", [LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNKNOWN])
def test_a_lost_card_is_unhealthy_until_it_answers(node: Node, error: int) -> None:
    node.read()
    node.b.error = error
    machine = node.read()
    assert healthy(machine) == {"GPU-a": True, "GPU-b": False, "GPU-c": True}
    assert machine.faults == {"GPU-b": str(pynvml.NVMLError(error))}
    assert node.nvml.sessions == 1, "NVML goes on for the other cards"
    node.b.error = pynvml.NVML_SUCCESS
    assert node.read().faults == {}


def test_a_card_that_answers_nonsense_is_unhealthy_and_stops_no_other(node: Node) -> None:
    node.read()
    node.b.garbled = True
    machine = node.read()
    assert healthy(machine) == {"GPU-a": True, "GPU-b": False, "GPU-c": True}
    assert machine.faults["GPU-b"].startswith("it answers what cannot be read: ")
    node.b.garbled = False
    assert node.read().faults == {}


def test_a_card_that_is_lost_while_it_is_read_is_unhealthy(node: Node) -> None:
    node.nvml.cards = [node.b]
    node.read()
    node.nvml.errors["nvmlDeviceGetTemperature"] = LOST
    assert node.read().faults == {"GPU-b": "GPU is lost"}


def test_instances_of_a_failing_card_fail_with_it(node: Node) -> None:
    node.b.mig, node.b.instances = True, [FakeInstance("MIG-1", 9)]
    assert all(healthy(node.read()).values())
    node.b.error = LOST
    assert node.read().faults == {"GPU-b": "GPU is lost", "MIG-1": "GPU is lost"}
    assert healthy(node.read()) == {"GPU-a": True, "GPU-b": False, "GPU-c": True, "MIG-1": False}


def test_cards_keep_their_index_when_the_driver_numbers_those_that_are_left(node: Node) -> None:
    node.read()
    node.nvml.restart_driver(cards=[node.b, node.c])
    machine = node.read()
    assert numbered(machine) == [("GPU-a", 0), ("GPU-b", 1), ("GPU-c", 2)]
    assert machine.faults == {"GPU-a": "the driver no longer lists it"}


def test_a_new_card_gets_an_index_that_no_known_card_has(node: Node) -> None:
    node.nvml.cards = [node.a, node.c]
    node.read()
    node.nvml.cards = [node.a, node.b, node.c]
    assert numbered(node.read()) == [("GPU-a", 0), ("GPU-c", 1), ("GPU-b", 2)]


def test_a_card_that_the_kernel_lists_later_is_found(node: Node) -> None:
    gpus = node.proc / "driver" / "nvidia" / "gpus"
    gpus.mkdir(parents=True)
    node.nvml.cards = [node.a]
    node.read()
    assert node.nvml.sessions == 1
    (gpus / "0000:02:00.0").mkdir()
    node.nvml.cards = [node.a, node.b]
    assert numbered(node.read()) == [("GPU-a", 0), ("GPU-b", 1)]
    assert node.nvml.sessions == 2, "NVML may look for cards only when it is initialised"
    node.read()
    assert node.nvml.sessions == 2


# -- the driver


def test_nvml_stays_initialised_while_it_works(node: Node) -> None:
    for _ in range(3):
        node.read()
    assert node.nvml.sessions == 1


def test_after_a_restart_of_the_driver_nvml_is_initialised_again(node: Node) -> None:
    node.read()
    node.nvml.restart_driver(driver="580.65.06")
    machine = node.read()
    assert (machine.driver, machine.faults, node.nvml.sessions) == ("580.65.06", {}, 2)


def test_if_every_card_is_lost_nvml_is_initialised_again(node: Node) -> None:
    node.read()
    for card in node.nvml.cards:
        card.error = LOST
    assert set(node.read().faults.values()) == {"GPU is lost"}
    assert node.nvml.sessions == 2


def test_without_a_driver_every_known_card_is_unhealthy_and_they_return_with_it(node: Node) -> None:
    node.read()
    node.nvml.restart_driver(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    machine = node.read()
    assert healthy(machine) == {"GPU-a": False, "GPU-b": False, "GPU-c": False}
    assert all(why.startswith("NVML does not work: Driver Not Loaded; ") for why in machine.faults.values())
    node.nvml.init_error = pynvml.NVML_SUCCESS
    assert node.read().faults == {}


@pytest.mark.parametrize("is_known", [True, False])
def test_an_update_of_the_driver_ends_the_agent_which_must_load_the_new_library(node: Node, is_known: bool) -> None:
    if is_known:
        node.read()
    node.nvml.restart_driver(init_error=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(BadConfig, match="the driver was updated, so the agent must start again") as raised:
        node.read()
    assert not isinstance(raised.value, NoDriver), "the agent would wait for ever"


def test_nvml_is_not_initialised_again_beneath_a_call_that_hangs(node: Node) -> None:
    node.read()
    node.b.hangs = True
    node.read()
    node.a.error = node.c.error = pynvml.NVML_ERROR_UNINITIALIZED
    assert set(node.read().faults) == {"GPU-a", "GPU-b", "GPU-c"}
    assert node.nvml.sessions == 1
    node.a.error = node.c.error = pynvml.NVML_SUCCESS
    node.nvml.release(node.b)
    assert node.read().faults == {}


def test_the_log_names_each_driver_once(node: Node) -> None:
    with capture_logs() as told:
        node.read()
        node.nvml.restart_driver()
        node.read()
        node.nvml.restart_driver(driver="580.65.06")
        node.read()
    drivers = [(line["driver"], line["cuda"]) for line in told if line["event"] == "the driver answers"]
    assert drivers == [("550.90.07", "12.4"), ("580.65.06", "12.4")]

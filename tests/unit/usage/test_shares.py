"""What each container uses of a card: measured, split, or unknown."""

import math

from aliquot.agent.devices import GpuProcess, Processes, Usage
from aliquot.agent.usage.cgroups import Container
from aliquot.agent.usage.owners import Owner
from aliquot.agent.usage.shares import Share, by_container

A, B = Container("pod-a", "a" * 64), Container("pod-b", "b" * 64)
SERVER = "the-mps-server"


def process(pid: int, memory: int | None = 0, cores: float | None = None, *, client: bool = False) -> GpuProcess:
    return GpuProcess(pid, memory, cores, sampled_since=math.inf, is_mps_client=client)


def usage(*running: GpuProcess, cores: float | None = 0.8) -> Usage:
    return Usage(cores=cores, processes=Processes(1.0, running, SERVER))


def test_samples_of_processes_are_summed_by_container() -> None:
    shown = usage(process(1, 10, 0.25), process(2, 20, 0.125), process(3, 5, 0.5), process(4, None, 0.0))
    owners = {1: Owner(A), 2: Owner(A), 3: Owner(B), 4: Owner(B)}
    assert by_container(shown, owners) == {A: Share(30, 0.375), B: Share(5, 0.5)}


def test_processes_of_the_host_and_ended_ones_are_nobodys() -> None:
    shown = usage(process(1, 10, 0.25), process(2, 20, 0.5), process(3, 30, 0.1))
    assert by_container(shown, {1: Owner(A), 2: Owner(None)}) == {A: Share(10, 0.25)}


def test_a_sample_from_before_its_process_is_another_process_s() -> None:
    inherited = GpuProcess(1, 10, 0.9, sampled_since=100.0)
    shown = usage(inherited, process(2, 5, 0.1))
    owners = {1: Owner(A, started=101.0), 2: Owner(B, started=101.0)}
    assert by_container(shown, owners) == {A: Share(10, None), B: Share(5, 0.1)}
    assert by_container(shown, {1: Owner(A, started=99.0)}) == {A: Share(10, 0.9)}


def test_mps_clients_share_what_their_server_computes_by_memory_and_that_is_an_estimate() -> None:
    server = process(9, 100, 0.75)
    shown = usage(server, process(1, 10, 0.0, client=True), process(2, 30, 0.0, client=True))
    owners = {9: Owner(None, name=SERVER), 1: Owner(A), 2: Owner(B)}
    assert by_container(shown, owners) == {
        A: Share(10, 0.1875, estimated=True),
        B: Share(30, 0.5625, estimated=True),
    }


def test_the_server_of_mps_in_a_pod_of_its_own_uses_nothing_for_itself() -> None:
    shown = usage(process(9, 100, 0.6), process(1, 10, 0.0, client=True))
    owners = {9: Owner(B, name=SERVER), 1: Owner(A)}
    assert by_container(shown, owners) == {A: Share(10, 0.6), B: Share(100, 0.0)}, "A is alone, so that is no estimate"


def test_a_container_hides_nothing_behind_the_name_of_a_server() -> None:
    shown = usage(process(9, 100, 0.6), process(1, 10, 0.1))
    assert by_container(shown, {9: Owner(B, name=SERVER), 1: Owner(A)}) == {A: Share(10, 0.1), B: Share(100, 0.6)}
    client = process(9, 100, 0.5, client=True)
    assert by_container(usage(client), {9: Owner(B, name=SERVER)}) == {B: Share(100, 0.5)}


def test_a_container_with_a_part_does_not_charge_clients_for_its_work_by_the_name_of_a_server() -> None:
    shown = usage(process(9, 100, 0.6), process(1, 10, 0.0, client=True))
    owners = {9: Owner(B, name=SERVER), 1: Owner(A)}
    assert by_container(shown, owners, {A, B}) == {A: Share(10, 0.0), B: Share(100, 0.6)}


def test_a_process_beside_mps_keeps_its_own_samples() -> None:
    clients = [process(1, 10, 0.0, client=True), process(2, 10, 0.0, client=True)]
    shown = usage(process(9, 0, 0.5), *clients, process(3, 5, 0.25))
    c = Container("pod-c", "c" * 64)
    owners = {9: Owner(None, name=SERVER), 1: Owner(A), 2: Owner(B), 3: Owner(c)}
    assert by_container(shown, owners) == {
        A: Share(10, 0.25, estimated=True),
        B: Share(10, 0.25, estimated=True),
        c: Share(5, 0.25),
    }


def test_without_samples_a_card_is_split_by_memory() -> None:
    shown = usage(process(1, 30), process(2, 10), cores=0.5)
    assert by_container(shown, {1: Owner(A), 2: Owner(B)}) == {
        A: Share(30, 0.375, estimated=True),
        B: Share(10, 0.125, estimated=True),
    }
    assert by_container(shown, {1: Owner(A), 2: Owner(A)}) == {A: Share(40, 0.5)}
    assert by_container(shown, {1: Owner(A), 2: Owner(None)})[A].estimated, "the host has a part, too"


def test_without_samples_and_memory_the_parts_are_equal() -> None:
    shown = usage(process(1, None), process(2, None), cores=0.5)
    assert by_container(shown, {1: Owner(A), 2: Owner(B)}) == {
        A: Share(0, 0.25, estimated=True),
        B: Share(0, 0.25, estimated=True),
    }


def test_on_a_mig_instance_cores_are_unknown() -> None:
    assert by_container(usage(process(1, 10), cores=None), {1: Owner(A)}) == {A: Share(10, None)}


def test_nobody_has_more_than_a_card() -> None:
    shown = usage(process(1, 10, 0.7), process(2, 10, 0.7))
    assert by_container(shown, {1: Owner(A), 2: Owner(A)})[A].cores == 1.0


def test_a_driver_that_lists_no_processes_tells_nothing() -> None:
    assert by_container(Usage(cores=0.5), {1: Owner(A)}) == {}

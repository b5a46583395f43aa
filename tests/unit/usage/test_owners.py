"""The owners of processes in a /proc that a test writes, and of real ones in ours."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.agent.devices import GpuProcess, Processes
from aliquot.agent.usage.cgroups import Container
from aliquot.agent.usage.owners import HostProcesses
from tests.fakes.proc import FakeProc

UID = "1f0e5c3a-7d2b-4c11-9a5e-0c8f3b6d2e41"
OTHER_UID = "2f0e5c3a-7d2b-4c11-9a5e-0c8f3b6d2e41"
ID, OTHER_ID = "a" * 64, "b" * 64
TICKS = os.sysconf("SC_CLK_TCK")


class Proc(FakeProc):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.owners = HostProcesses(folder)

    def end(self, pid: int) -> None:
        shutil.rmtree(self.folder / str(pid))

    def containers(self, *pids: int, asked_at: float = 100) -> dict[int, Container | None] | None:
        found = self.owners.of([Processes(asked_at, tuple(map(GpuProcess, pids)))])
        return None if found is None else {pid: owner.container for pid, owner in found.items()}


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_two_containers_and_the_host_are_told_apart(proc: Proc) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}")
    proc.write(8, f"/kubepods/pod{OTHER_UID}/{OTHER_ID}", name="a (strange) name")
    proc.write(9, "/system.slice/x.service")
    assert proc.containers(7, 8, 9, 10) == {7: Container(UID, ID), 8: Container(OTHER_UID, OTHER_ID), 9: None}


def test_the_name_and_the_start_of_a_process_are_known(proc: Proc) -> None:
    proc.write(7, "/", name="a (strange) name", started=40)
    (owner,) = (proc.owners.of([Processes(100, (GpuProcess(7),))]) or {}).values()
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert owner.name == "a (strange) name"
    assert owner.started == pytest.approx(booted + 40, abs=5)


def test_a_process_that_started_after_the_driver_was_asked_has_inherited_its_pid(proc: Proc) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}", started=100)
    assert proc.containers(7, asked_at=100) == {}
    assert proc.containers(7, asked_at=100 + 1 / TICKS) == {7: Container(UID, ID)}


def test_a_pid_that_is_used_again_gets_its_new_container(proc: Proc) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}", started=10)
    assert proc.containers(7) == {7: Container(UID, ID)}
    proc.write(7, f"/kubepods/pod{OTHER_UID}/{OTHER_ID}", started=50)
    assert proc.containers(7, asked_at=40) == {}
    assert proc.containers(7) == {7: Container(OTHER_UID, OTHER_ID)}


def test_a_cgroup_is_read_once_per_process(proc: Proc) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}")
    proc.write(8, "/")
    assert proc.containers(7, 8) == {7: Container(UID, ID), 8: None}
    for pid in ("7", "8"):
        (proc.folder / pid / "cgroup").unlink()
    assert proc.containers(7, 8) == {7: Container(UID, ID), 8: None}


def test_a_process_that_ends_between_two_reads_has_no_owner(proc: Proc) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}")
    (proc.folder / "7" / "cgroup").unlink()
    assert proc.containers(7) == {}
    proc.end(7)
    assert proc.containers(7) == {}


@pytest.mark.parametrize("text", ["", "7 (x)", "7 (x) S 1 2", "7 (x) " + "x " * 30])
def test_a_file_that_cannot_be_read_has_no_owner(proc: Proc, text: str) -> None:
    proc.write(7, "/")
    (proc.folder / "7" / "stat").write_text(text)
    assert proc.containers(7) == {}


@pytest.mark.parametrize("second", [None, "python"])
def test_a_proc_of_another_namespace_tells_nothing(proc: Proc, second: str | None) -> None:
    proc.write(7, f"/kubepods/pod{UID}/{ID}")
    proc.end(2)
    if second:
        proc.write(2, f"/kubepods/pod{UID}/{ID}", name=second)
    assert proc.containers(7) is None


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_a_real_process_is_found_unless_it_began_after_the_driver_was_asked(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    """In a folder with the real /proc/PID below it, whoever is process 2 here."""
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    (tmp_path / str(child.pid)).symlink_to(f"/proc/{child.pid}")
    owners = HostProcesses(tmp_path)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    listed = (GpuProcess(child.pid),)
    assert owners.of([Processes(now - 3600, listed)]) == {}
    found = owners.of([Processes(now + 1, listed)])
    assert found is not None
    assert found[child.pid].name == "cat"
    assert found[child.pid].started == pytest.approx(time.time(), abs=60)

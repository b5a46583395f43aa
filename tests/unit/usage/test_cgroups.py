"""The container of a process, in every form of a cgroup's path."""

import pytest

from aliquot.agent.usage.cgroups import Container, container_in

UID = "1f0e5c3a-7d2b-4c11-9a5e-0c8f3b6d2e41"
UNDERSCORED = UID.replace("-", "_")
ID = "4c01db0b339c" + 52 * "a"
OTHER = "b" * 64
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"

V1 = """\
12:pids:{path}
11:memory:{path}
2:cpu,cpuacct:{path}
1:name=systemd:{path}
0::/
"""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/kubepods/besteffort/pod{UID}/{ID}", id="cgroupfs, besteffort"),
        pytest.param(f"/kubepods/burstable/pod{UID}/{ID}", id="cgroupfs, burstable"),
        pytest.param(f"/kubepods/pod{UID}/{ID}", id="cgroupfs, guaranteed"),
        pytest.param(f"/kubepods/burstable/pod{UID}/crio-{ID}", id="cgroupfs, CRI-O"),
        pytest.param(f"{SLICE}/cri-containerd-{ID}.scope", id="systemd, containerd"),
        pytest.param(f"{SLICE}/crio-{ID}.scope", id="systemd, CRI-O"),
        pytest.param(f"{SLICE}/crio-{ID}.scope/container", id="systemd, CRI-O with a cgroup below"),
        pytest.param(f"{SLICE}/docker-{ID}.scope", id="systemd, Docker"),
        pytest.param(f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope", id="systemd, guaranteed"),
        pytest.param(
            f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
            id="kubelet with systemd, containerd without",
        ),
        pytest.param(f"/my/root/kubepods/burstable/pod{UID}/{ID}", id="--cgroup-root, cgroupfs"),
        pytest.param(
            f"/my.slice/my-kubepods.slice/my-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            id="--cgroup-root, systemd",
        ),
        pytest.param(f"/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}", id="a node that is a container"),
        pytest.param(f"/../../pod{UID}/{ID}", id="seen from a cgroup namespace"),
        pytest.param(f"/../..{SLICE}/cri-containerd-{ID}.scope", id="seen from a cgroup namespace, systemd"),
        pytest.param(f"{SLICE}/cri-containerd-{ID}.scope/system.slice/cron.service", id="systemd in the container"),
        pytest.param(f"/kubepods/pod{UID}/{ID}/docker/{OTHER}", id="Docker in the container"),
        pytest.param(
            f"/kubepods/pod{UID}/{ID}/kubepods/pod{UID[::-1].replace('a', '0')}/{OTHER}", id="a forged pod below"
        ),
    ],
)
@pytest.mark.parametrize("form", ["0::{path}\n", V1], ids=["v2", "v1"])
def test_the_container_is_found(form: str, path: str) -> None:
    assert container_in(form.format(path=path)) == Container(UID, ID)


def test_one_controller_with_the_path_is_enough() -> None:
    text = f"9:name=systemd:/\n8:pids:/\n4:memory:/kubepods/pod{UID}/{ID}\n0::/\n"
    assert container_in(text) == Container(UID, ID)


def test_a_static_pod_has_a_hash_for_a_uid() -> None:
    hashed = "0123456789abcdef0123456789abcdef"
    assert container_in(f"0::/kubepods/burstable/pod{hashed}/{ID}\n") == Container(hashed, ID)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/init.scope",
        "/system.slice/docker.service",
        "/user.slice/user-1000.slice/session-3.scope",
        f"/docker/{ID}",
        f"/system.slice/docker-{ID}.scope",
        "/kubepods/pod123/container",
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods/burstable/pod{UID}/abc",
        f"{SLICE}/crio-conmon-{ID}.scope",
        f"/kubepods/notapod{UID}/{ID}",
    ],
)
def test_a_process_outside_of_containers_has_none(path: str) -> None:
    assert container_in(f"0::{path}\n") is None

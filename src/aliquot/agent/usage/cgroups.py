"""The container of a process, by the path of its cgroup.

kubelet names the cgroup of a pod after its UID, and the container runtime that of a container after its id:

    /kubepods/burstable/pod1f0e…/4c01…                                             cgroupfs: containerd, Docker
    /kubepods/pod1f0e…/crio-4c01…                                                  cgroupfs: CRI-O
    /kubepods.slice/kubepods-pod1f0e_….slice/cri-containerd-4c01….scope            systemd: also crio- and docker-
    /system.slice/containerd.service/kubepods-pod1f0e_….slice:cri-containerd:4c01… kubelet systemd, containerd cgroupfs

Folders may stand before it (`--cgroup-root`, or a node that is itself a container), and after it (systemd, or another
runtime, inside the container). The first container in the path is kubelet's: a container can make cgroups only below
its own.
"""

import re
from typing import NamedTuple

_UID = "[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12}"
_CONTAINER = re.compile(
    rf"[/-]pod(?P<uid>{_UID})(?:\.slice)?[/:]"
    r"(?:cri-containerd[-:]|crio-|docker-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=[/:]|$)"
)


class Container(NamedTuple):
    pod_uid: str
    id: str
    """The container runtime's."""


def container_in(text: str) -> Container | None:
    """The container that `/proc/PID/cgroup` names; None if the process runs in none. With cgroup v1 each controller has
    a line, and not all of them need to name the container."""
    for line in text.splitlines():
        path = line.partition(":")[2].partition(":")[2]
        if (match := _CONTAINER.search(path)) is not None:
            return Container(match["uid"].replace("_", "-"), match["id"])
    return None

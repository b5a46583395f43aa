"""A real Kubernetes on one machine, with simulated GPUs: `with Rig.up() as rig: ...`."""

from tests.rig.errors import RigError
from tests.rig.images import BUSYBOX, PAUSE, Image
from tests.rig.node import Node, NodeSpec
from tests.rig.nvml import FakeNvml, Gpu, GpuProcess
from tests.rig.prerequisites import missing
from tests.rig.processes import Process
from tests.rig.rig import Rig
from tests.rig.waiting import wait_for

__all__ = [
    "Rig",
    "Node",
    "NodeSpec",
    "RigError",
    "Process",
    "missing",
    "wait_for",
    "FakeNvml",
    "Gpu",
    "GpuProcess",
    "Image",
    "BUSYBOX",
    "PAUSE",
]

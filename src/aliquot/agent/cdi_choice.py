"""Whether this node's containers get their devices through CDI, chosen once at start.

With CDI the agent promises a device name at Allocate and writes its spec at PreStart. Without CDI, the answer to
Allocate carries the devices.
"""

from pathlib import Path

import structlog

from aliquot.agent import runtime
from aliquot.agent.cdi import SpecFolder
from aliquot.agent.kubelet_version import passes_cdi_devices
from aliquot.config.agent_tree import Injection
from aliquot.errors import BadConfig

_log = structlog.get_logger()


async def uses_cdi(
    wanted: Injection, kubelet: str, runtime_socket: Path | None, cdi_folder: Path, pod_resources: Path
) -> bool:
    """Whether containers get their devices through CDI. Says which way it is, and why. Prepares the CDI folder.
    `kubelet` is the version of kubelet.

    Raises BadConfig if CDI is wanted and does not work, or if a runtime that is there does not answer.
    """
    if wanted == "allocate":
        why = "--injection says so"
    elif not (why := await _obstacle(kubelet, runtime_socket, cdi_folder, pod_resources)):
        _log.info("containers get their devices through CDI", folder=str(cdi_folder))
        return True
    elif wanted == "cdi":
        raise BadConfig(why)
    _log.warning("containers get their devices at Allocate, without CDI", why=why)
    return False


async def _obstacle(kubelet: str, runtime_socket: Path | None, cdi_folder: Path, pod_resources: Path) -> str:
    """Why CDI does not work here; empty if it does."""
    if not passes_cdi_devices(kubelet):
        return f"kubelet {kubelet} does not pass CDI devices to the container runtime; 1.29 and newer ones do"
    if runtime_socket is not None:
        if not runtime_socket.parent.is_dir():
            return f"no container runtime at {runtime_socket}: set --runtime-endpoint, or mount the socket's folder"
        if lacking := await runtime.lacks(runtime_socket, cdi_folder):
            return lacking
    if not pod_resources.parent.is_dir():
        return f"no PodResources API of kubelet at {pod_resources}: set --pod-resources, or mount the socket's folder"
    try:
        SpecFolder(cdi_folder).prepare()
    except BadConfig as error:
        return str(error)
    return ""

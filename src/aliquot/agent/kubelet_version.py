"""The version of this node's kubelet, which its Node tells."""

import re

import msgspec
import structlog

from aliquot.clock import Clock
from aliquot.kube import NODES, Client, KubeError, NotFound
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import ApiResource
from aliquot.model import Object

_log = structlog.get_logger()
_LOOK_SECONDS = 10.0
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_WITH_CDI = (1, 29)
"""The first kubelet that passes the CDI devices of a device plugin on. Older ones ignore them without a word."""


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    kubelet_version: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    node_info: _Info = _Info()


class _Node(Object, frozen=True):
    status: _Status = _Status()


_VERSIONS = ApiResource(NODES.prefix, NODES.plural, _Node, NODES.namespaced)


async def kubelet_version(client: Client, node: str, clock: Clock) -> str:
    """Empty if nobody tells it. Waits for an API server that is away."""
    is_told = False
    while True:
        try:
            return (await client.get(_VERSIONS, node)).status.node_info.kubelet_version
        except (NotFound, Forbidden):
            return ""
        except KubeError as error:
            if not is_told:
                _log.warning("cannot read the version of kubelet, retrying", node=node, error=str(error))
            is_told = True
        await clock.sleep(_LOOK_SECONDS)


def passes_cdi_devices(version: str) -> bool:
    """Whether a kubelet passes the CDI devices of a device plugin on to the container runtime. An unknown one does."""
    numbers = _NUMBERS.match(version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= _WITH_CDI

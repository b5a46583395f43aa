"""Ports, addresses and forwarding on this machine, for one rig among several."""

import ipaddress
import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.rig.errors import RigError

LOOPBACK = "127.0.0.1"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_ALL_PODS = ipaddress.ip_network("10.244.0.0/16")
_SERVICES = "10.96"


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The addresses of one node: a /24 for its pods, the last address of it for itself. Those of a rig's first node
    have another /24 for Services."""

    subnet: str

    @classmethod
    def choose(cls) -> "PodNetwork":
        return cls.choose_several(1)[0]

    @classmethod
    def choose_several(cls, count: int) -> list["PodNetwork"]:
        """So many /24 that no route and no address of this machine lies in."""
        answer = _ip("-json", "-4", "route", "show", "table", "all")
        taken = [route["dst"] for route in json.loads(answer) if route["dst"] != "default"]
        used = [ipaddress.ip_network(dst, strict=False) for dst in taken if _is_network(dst)]
        free = [net for net in _ALL_PODS.subnets(new_prefix=24) if not any(net.overlaps(each) for each in used)]
        if len(free) < count:
            raise RigError(f"no /24 is free in {_ALL_PODS}: see `ip route show table all`")
        return [cls(str(each)) for each in random.sample(free, count)]

    @property
    def node_address(self) -> str:
        return str(ipaddress.ip_network(self.subnet)[-2])

    @property
    def last_pod_address(self) -> str:
        return str(ipaddress.ip_network(self.subnet)[-3])

    @property
    def services(self) -> str:
        return f"{_SERVICES}.{self.subnet.split('.')[2]}.0/24"

    @property
    def services_link(self) -> str:
        return f"rig-svc-{self.subnet.split('.')[2]}"

    @property
    def api_address(self) -> str:
        """Of the Service "kubernetes"."""
        return str(ipaddress.ip_network(self.services)[1])

    @property
    def dns_address(self) -> str:
        return str(ipaddress.ip_network(self.services)[10])

    def add_node_address(self) -> None:
        """Give the node an address of its own on the loopback link: kubelet refuses 127.0.0.1."""
        _ip("address", "add", f"{self.node_address}/32", "dev", "lo")

    def allow_forwarding(self) -> None:
        """Let pods reach each other; the plugin of the first pod would do the same, but later."""
        FORWARDING.write_text("1")

    def remove_node_address(self) -> None:
        subprocess.run(
            ["ip", "address", "del", f"{self.node_address}/32", "dev", "lo"], capture_output=True, check=False
        )

    def remove_links(self) -> None:
        """Links of pods and of Services whose network namespace has not been cleared by the kernel yet."""
        for route in json.loads(_ip("-json", "-4", "route", "show", "root", self.subnet)):
            if route["dev"].startswith("veth"):
                subprocess.run(["ip", "link", "del", route["dev"]], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.services_link], capture_output=True, check=False)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout or "[]"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True

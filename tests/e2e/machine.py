"""What a rig could leave behind on a machine, as sets to compare before and after."""

import json
import subprocess
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

_NAME = "aliquot-rig-"
_NAMELESS = ("containerd-shim", "runc")

_PLACES = (
    *("/etc", "/etc/cni", "/opt", "/run", "/run/netns", "/usr/libexec", "/var/lib", "/var/lib/cni", "/var/log"),
    *("/sys/fs/cgroup", *(str(each) for each in sorted(Path("/sys/fs/cgroup").glob("*/")))),
)

_SETTINGS = (
    *("net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    processes: frozenset[str]
    mounts: frozenset[str]
    network: frozenset[str]
    firewall: frozenset[str]
    files: frozenset[str]
    settings: frozenset[str]

    @classmethod
    def look(cls) -> "Machine":
        return cls(_processes(), _mounts(), _network(), _firewall(), _files(), _settings())

    def changes_since(self, before: "Machine") -> dict[str, list[str]]:
        """What is there now and was not before, or the other way round."""
        changes = {
            field.name: sorted(getattr(self, field.name) ^ getattr(before, field.name)) for field in fields(self)
        }
        return {name: changed for name, changed in changes.items() if changed}


def _processes() -> frozenset[str]:
    """Processes that name a rig's folder or are in a rig's cgroup, and the runtime's that do not."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, command, cgroup = ((folder / file).read_text() for file in ("comm", "cmdline", "cgroup"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        if _NAME in command or _NAME in cgroup or name.startswith(_NAMELESS):
            found.add(f"{folder.name} {name.strip()}")
    return frozenset(found)


def _mounts() -> frozenset[str]:
    return frozenset(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _network() -> frozenset[str]:
    links = json.loads(_output("ip", "-json", "address"))
    addresses = {f"{link['ifname']} {info['local']}" for link in links for info in link["addr_info"]}
    routes = {route.strip() for route in _output("ip", "route", "show", "table", "all").splitlines()}
    found = {link["ifname"] for link in links} | addresses | routes
    # a link of another rig gets its link-local address a while after it was made
    return frozenset(each for each in found if "fe80:" not in each)


def _firewall() -> frozenset[str]:
    rules = _output("iptables-save").splitlines()
    return frozenset(rule.split(" [")[0] for rule in rules if not rule.startswith("#"))


def _files() -> frozenset[str]:
    places = [Path(place) for place in _PLACES]
    found = {str(each) for place in places if place.is_dir() for each in place.iterdir()}
    rigs = {str(each) for each in Path(tempfile.gettempdir()).glob(f"{_NAME}*")}
    homes = {str(each) for each in (Path.home() / ".kube").rglob("*")}
    return frozenset(found | rigs | homes)


def _settings() -> frozenset[str]:
    return frozenset(f"{name} = {(Path('/proc/sys') / name).read_text().strip()}" for name in _SETTINGS)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

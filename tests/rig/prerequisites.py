"""What this machine must have before the rig can start."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.rig import programs

CNI_PLUGINS = Path("/usr/lib/cni")
CGROUPS = Path("/sys/fs/cgroup")

# in the node's own view of the file system these are empty (see namespace_init.py)
_HIDDEN = (Path("/var/lib"), Path("/var/log"), Path("/run"))

_COMMANDS = {
    "busybox": "busybox-static",
    "cc": "gcc libc6-dev",
    "curl": "curl",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "nsenter": "util-linux",
    "runc": "runc",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


def missing() -> list[str]:
    """What is missing, each with its remedy; nothing when the rig can start."""
    return [*_missing_rights(), *_missing_packages(), *_hidden_folders()]


def _missing_rights() -> list[str]:
    if os.geteuid() != 0:
        return ["the rig makes namespaces, device nodes and containers: run it as root"]
    if not os.access(CGROUPS, os.W_OK) or not any(CGROUPS.iterdir()):
        return [f"no cgroups that can be written to at {CGROUPS}: mount them, or leave the container"]
    return []


def _missing_packages() -> list[str]:
    wanted = {package for command, package in _COMMANDS.items() if shutil.which(command) is None}
    if _is_dynamic(shutil.which("busybox")):
        wanted.add("busybox-static")
    if not all((CNI_PLUGINS / plugin).exists() for plugin in ("ptp", "host-local", "loopback")):
        wanted.add("containernetworking-plugins")
    if not wanted:
        return []
    return [f"programs are missing; install them: apt-get install {' '.join(sorted(wanted))}"]


def _is_dynamic(program: str | None) -> bool:
    """Whether a program needs libraries, which an image made of it alone would not have."""
    return program is not None and subprocess.run(["ldd", program], capture_output=True, check=False).returncode == 0


def _hidden_folders() -> list[str]:
    cache = programs.cache_folder().resolve()
    if not any(cache.is_relative_to(hidden) for hidden in _HIDDEN):
        return []
    return [f"the rig's programs cannot be kept in {cache}: set XDG_CACHE_HOME to another folder"]

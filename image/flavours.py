"""The images: the same layers, each with another program as its default."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_ADMISSION = """\
if [ -s /etc/kubernetes/scheduler.conf ]; then set -- --kubeconfig=/etc/kubernetes/scheduler.conf; fi
exec gpu-admission --address=0.0.0.0:3456 --v=$LOG_LEVEL --logtostderr=true "$@" $EXTRA_FLAGS"""
"""The original's default command. Its manifest mounts scheduler.conf and names it nowhere; without the mount kubelet
creates an empty file."""

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "NVIDIA_VISIBLE_DEVICES": "all",
    # what NVML needs of the driver
    "NVIDIA_DRIVER_CAPABILITIES": "utility",
    "PYTHONUTF8": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Flavour:
    """`entrypoint` stays when a manifest gives `args:`, `command` does not."""

    program: str
    repository: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


FLAVOURS = (
    Flavour("aliquot", "aliquot", entrypoint=("aliquot",), command=("--help",)),
    Flavour(
        "gpu-admission",
        "aliquot/gpu-admission",
        command=("/bin/sh", "-c", _ADMISSION),
        port=3456,
        environment={"LOG_LEVEL": "2", "EXTRA_FLAGS": ""},
    ),
    Flavour(
        "gpushare-schd-extender",
        "aliquot/gpushare-schd-extender",
        entrypoint=("gpushare-schd-extender",),
        port=12345,
    ),
    Flavour(
        "elastic-gpu-scheduler", "aliquot/elastic-gpu-scheduler", entrypoint=("elastic-gpu-scheduler",), port=39999
    ),
    Flavour("nano-gpu-scheduler", "aliquot/nano-gpu-scheduler", entrypoint=("nano-gpu-scheduler",), port=39999),
)

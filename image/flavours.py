"""The images: each with another program as its default. Those of the agent leave out what only the server needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_ADMISSION = """\
if [ -s /etc/kubernetes/scheduler.conf ]; then set -- --kubeconfig=/etc/kubernetes/scheduler.conf; fi
exec gpu-admission --address=0.0.0.0:3456 --v=$LOG_LEVEL --logtostderr=true "$@" $EXTRA_FLAGS"""
"""The original's default command. Its manifest mounts scheduler.conf and names it nowhere; without the mount kubelet
creates an empty file."""

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONUTF8": "1",
    "PYTHONUNBUFFERED": "1",
}

SERVER_ONLY = (
    "numpy",
    "uvicorn",
    "h11",
    "aiohttp",
    "aiohappyeyeballs",
    "aiosignal",
    "attrs",
    "frozenlist",
    "idna",
    "multidict",
    "propcache",
    "yarl",
    "cryptography",
    "cffi",
    "pycparser",
)
"""Requirements that the agent does not import."""

_SEES_ALL = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
"""With these, NVIDIA's container runtime gives a container every card and NVML. The originals' manifests rely on
it; ours mounts the driver instead."""

GPU_MANAGER_LOGS = "var/log/gpu-manager"
_GPU_MANAGER = f"""\
exec gpu-manager --hostname-override="$NODE_NAME" --share-mode=true --v=$LOG_LEVEL --log-dir=/{GPU_MANAGER_LOGS} \
$EXTRA_FLAGS"""
"""The original's manifest mounts the folder, and says `--logtostderr=false` in EXTRA_FLAGS."""

INSTALL = """\
#!/bin/sh
echo "Aliquot installs nothing on the node: NVIDIA's container toolkit stays as it is."
"""
"""elastic-gpu's manifest runs /usr/bin/install.sh in an init container. The original replaces programs of the host
there."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """`entrypoint` stays when a manifest gives `args:`, `command` does not."""

    program: str
    repository: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    port: int = 0
    is_agent: bool = False
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
    Flavour("gpuserver", "aliquot/gpuserver", entrypoint=("gpuserver",), port=8080),
    Flavour("aliquot", "aliquot/agent", entrypoint=("aliquot", "agent"), is_agent=True),
    Flavour(
        "gpushare-device-plugin-v2",
        "aliquot/gpushare-device-plugin-v2",
        entrypoint=("gpushare-device-plugin-v2",),
        is_agent=True,
        environment=_SEES_ALL,
    ),
    Flavour(
        "elastic-gpu-agent",
        "aliquot/elastic-gpu-agent",
        entrypoint=("elastic-gpu-agent",),
        is_agent=True,
        environment=_SEES_ALL,
    ),
    Flavour(
        "gpuserver-ds",
        "aliquot/gpuserver-ds",
        entrypoint=("gpuserver-ds",),
        is_agent=True,
        environment=_SEES_ALL,
    ),
    Flavour(
        "gpu-manager",
        "aliquot/gpu-manager",
        command=("/bin/sh", "-c", _GPU_MANAGER),
        is_agent=True,
        environment={**_SEES_ALL, "LOG_LEVEL": "2", "EXTRA_FLAGS": ""},
    ),
)

"""What a container sees of its cards and of the driver, as it tells itself, and what it should see."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.rig import Rig
from tests.rig.cuda import IMAGE, LIBRARIES, OTHERS, VERSION, Driver
from tests.rig.cuda.toolkit_spec import V1_20, Card, Toolkit
from tests.rig.nvml import Gpu

CONTROL = {"/dev/nvidiactl": (195, 255), "/dev/nvidia-uvm": (235, 0), "/dev/nvidia-uvm-tools": (235, 1)}
_MAJORS = {"/dev/dri/": 226, "/dev/nvidia-caps/": 236, "/dev/nvidia": 195}
_DRM_GROUPS = frozenset((44, 105))
_FILES = f"{' '.join(OTHERS)} /usr/share/nvidia/cards/*"
_LINKS = r"find /dev/dri /usr/lib \( -path '/dev/*' -o -name 'libcuda*' -o -name 'libnvidia*' \) -type l 2>/dev/null"
LOOK = "; ".join(
    (
        "env | sed 's/^/env /'",
        r"find /dev \( -path '/dev/nvidia*' -o -path '/dev/dri/*' \) -type c -exec stat -c 'node %n %t %T' {} +",
        "sed 's/^/mount /' /proc/self/mountinfo",
        f'for file in {_FILES}; do [ -f $file ] && echo "file $file $(cat $file)"; done',
        f'for link in $({_LINKS}); do echo "link $link $(readlink $link)"; done',
        "[ -f /hooks ] && sed 's/^/hook /' /hooks",
        "sed -n 's/^Groups:/groups /p' /proc/self/status",
        "count-cards | sed 's/^/cuda /'",
    )
)


@dataclass(frozen=True)
class DriverView:
    nodes: Mapping[str, tuple[int, int]]
    mounts: frozenset[str]
    """Where it has files of the driver root."""
    files: Mapping[str, str]
    links: Mapping[str, str]
    hooks: Sequence[str]
    """Those that ran for it."""
    drm_groups: frozenset[int]
    cuda: tuple[int, ...]
    """The minor numbers of the cards that a CUDA program counts."""


@dataclass(frozen=True)
class Seen:
    environment: Mapping[str, str]
    driver: DriverView


def look(rig: Rig, driver: Driver, pod: str, container: str = "main") -> Seen:
    return read(rig.kubectl("exec", pod, "--container", container, "--", "sh", "-c", LOOK), driver)


def read(output: str, driver: Driver) -> Seen:
    """What LOOK has printed in a container."""
    told: dict[str, list[str]] = {}
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        told.setdefault(word, []).append(rest)
    mounts = [fields.split() for fields in told["mount"]]
    nodes = [fields.split() for fields in told.get("node", [])]
    view = DriverView(
        {path: (int(major, 16), int(minor, 16)) for path, major, minor in nodes},
        frozenset(fields[4] for fields in mounts if f"/{driver.root.name}/" in fields[3]),
        _pairs(told.get("file", [])),
        _pairs(told.get("link", [])),
        told.get("hook", []),
        frozenset(int(group) for line in told["groups"] for group in line.split()) & _DRM_GROUPS,
        tuple(sorted(int(uuid.rpartition("-")[2], 16) for uuid in told["cuda"] if uuid.startswith("GPU-"))),
    )
    return Seen({name: value for name, _, value in (line.partition("=") for line in told["env"])}, view)


def of_toolkit(driver: Driver, gpus: Sequence[Gpu], toolkit: Toolkit = V1_20) -> DriverView:
    """All that the toolkit's spec has of these cards, and nothing of another."""
    return _view(driver, [driver.card(gpu) for gpu in gpus], [gpu.minor for gpu in gpus], toolkit)


def of_instance(driver: Driver, instance: Card, parent: Gpu) -> DriverView:
    """The same for a MIG instance."""
    return _view(driver, [instance], [parent.minor], V1_20)


def _view(driver: Driver, cards: Sequence[Card], minors: Sequence[int], toolkit: Toolkit) -> DriverView:
    nodes = {path: _numbers(path) for card in cards for path in card.nodes}
    files = [*OTHERS, *(path for card in cards for path in card.files)]
    libraries = [path for path in driver.host.files if path.startswith(f"{LIBRARIES}/")]
    links = {
        f"{LIBRARIES}/libcuda.so": "libcuda.so.1",
        f"{LIBRARIES}/libcuda.so.1": f"libcuda.so.{VERSION}",
        f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
    }
    has_drm = toolkit.describes_nodes and any("/dri/" in path for path in nodes)
    return DriverView(
        nodes | CONTROL,
        frozenset([*libraries, *files]),
        {path: path for path in files},
        links | {path: target for card in cards for path, target in card.links.items()},
        toolkit.hook_calls(driver.host, cards),
        _DRM_GROUPS if has_drm else frozenset(),
        tuple(sorted(minors)),
    )


def _numbers(path: str) -> tuple[int, int]:
    """The nodes of cards have their minor numbers in their names."""
    major = next(major for place, major in _MAJORS.items() if path.startswith(place))
    return major, int("".join(filter(str.isdigit, path)))


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    return {first: rest for first, _, rest in (line.partition(" ") for line in lines)}


def with_cuda(pod: dict[str, Any]) -> dict[str, Any]:
    """The same pod with an image that has a CUDA program and, as NVIDIA's, asks for every card."""
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])):
        container["image"] = IMAGE
    return pod

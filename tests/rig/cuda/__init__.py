"""A driver that CUDA programs find, without a card: its files, and NVIDIA's runtime.

The library, the program that counts cards, and the programs and the CDI spec of the toolkit are beside this file.
"""

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.rig import images, nvml
from tests.rig.cuda.toolkit_spec import V1_20, Card, Host, Toolkit
from tests.rig.images import Image
from tests.rig.nvml import Gpu
from tests.rig.rig import Rig

IMAGE = "docker.io/local/cuda:1"
VERSION = "570.86.15"
LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"
"""The folder of libraries, in the driver root and in a container."""
NAMES = ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}", "libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}")
"""The names of the driver's libraries in that folder."""
_FILES = ("/usr/bin/nvidia-smi", f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
_SOCKETS = ("/run/nvidia-persistenced/socket",)
OTHERS = _FILES + _SOCKETS
"""The driver's other files. Each has its own path in it."""

_HERE = Path(__file__).parent
_DRM_MAJOR = 226
_VIDEO, _RENDER = 44, 105
"""The groups of DRM nodes on Debian and Ubuntu."""


class Driver:
    """The driver of a rig's node."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.root = rig.folder / "driver"
        self._programs = rig.folder / "toolkit"
        hook = self._programs / "nvidia-cdi-hook"
        libraries = [f"{LIBRARIES}/{name}" for name in NAMES if name.endswith(VERSION)]
        self.host = Host(rig.dev_folder, self.root, hook, LIBRARIES, VERSION, [*libraries, *_FILES], _SOCKETS)

    def install(self) -> None:
        """Make its files, and give the node an image with a CUDA program and without the driver. The second time there
        is nothing to do."""
        if self.root.exists():
            return
        libraries = self.root / LIBRARIES.lstrip("/")
        libraries.mkdir(parents=True)
        self._programs.mkdir()
        library = libraries / f"libcuda.so.{VERSION}"
        compile_c = ["cc", "-O1", "-Wall", "-Wextra"]
        subprocess.run(
            [*compile_c, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, _HERE / "fake_cuda.c"],
            check=True,
        )
        nvml.build(libraries).rename(libraries / f"libnvidia-ml.so.{VERSION}")
        for link, target in {
            "libcuda.so.1": library.name,
            "libcuda.so": "libcuda.so.1",
            "libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
        }.items():
            (libraries / link).symlink_to(target)
        program = self._programs / "count-cards"
        subprocess.run([*compile_c, "-o", program, _HERE / "count_cards.c", library], check=True)
        shutil.copy(_HERE / self.host.hook.name, self.host.hook)
        self.host.hook.chmod(0o755)
        self._put(OTHERS)
        self._rig.load_images([_image(program)])

    def write_spec(self, toolkit: Toolkit = V1_20, instances: Sequence[Card] = ()) -> Path:
        """Let the toolkit write its spec of this driver, the node's cards, and these MIG instances, whose cards are not
        in it. Returns the file. Makes what only the toolkit sees of cards."""
        whole = [gpu for gpu in self._rig.nvml.gpus if gpu.mig != 1]
        cards = [self.card(gpu) for gpu in whole]
        for gpu, card in zip(whole, cards, strict=True):
            self._put(card.files)
            self._make_drm_nodes(gpu)
        return toolkit.write(self._rig.cdi_folder, self.host, [*cards, *instances])

    def card(self, gpu: Gpu) -> Card:
        """A card as the toolkit finds it."""
        minor = gpu.minor
        render = 128 + minor
        bus = f"/dev/dri/by-path/pci-0000:{minor:02x}:00.0"
        return Card(
            str(self._rig.nvml.gpus.index(gpu)),
            gpu.uuid,
            [f"/dev/nvidia{minor}", f"/dev/dri/card{minor}", f"/dev/dri/renderD{render}"],
            {f"{bus}-card": f"../card{minor}", f"{bus}-render": f"../renderD{render}"},
            [f"/usr/share/nvidia/cards/{minor}"],
        )

    def _put(self, files: Sequence[str]) -> None:
        for inside in files:
            path = self.root / inside.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{inside}\n")

    def _make_drm_nodes(self, gpu: Gpu) -> None:
        folder = self._rig.dev_folder / "dri"
        folder.mkdir(exist_ok=True)
        for name, minor, group in (
            (f"card{gpu.minor}", gpu.minor, _VIDEO),
            (f"renderD{128 + gpu.minor}", 128 + gpu.minor, _RENDER),
        ):
            node = folder / name
            if not node.exists():
                os.mknod(node, stat.S_IFCHR, os.makedev(_DRM_MAJOR, minor))
                node.chmod(0o660)
                os.chown(node, 0, group)

    def nvidia_runtime(self) -> Path:
        """The program that containerd starts instead of runc."""
        cards = {gpu.uuid: gpu.minor for gpu in self._rig.nvml.gpus}
        (self._programs / "cards.json").write_text(json.dumps(cards))
        program = self._programs / "nvidia-container-runtime"
        program.write_text(f"#!{sys.executable} -I\n{(_HERE / 'nvidia_container_runtime.py').read_text()}")
        program.chmod(0o755)
        return program


def _image(program: Path) -> Image:
    """A shell and the program with the C library, as an image of NVIDIA's that asks for every card."""
    files: Mapping[str, bytes | Path] = {f"bin/{program.name}": program}
    wanted = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    shell = images.busybox()
    return replace(
        shell,
        name=IMAGE,
        files={**shell.files, **files, **_c_library(program)},
        environment={**shell.environment, **wanted},
    )


def _c_library(program: Path) -> Mapping[str, Path]:
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [Path(word) for line in told.splitlines() for word in line.split() if word.startswith("/")]
    return {str(path).lstrip("/"): path for path in paths if "cuda" not in path.name}

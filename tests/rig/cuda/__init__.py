"""A driver that CUDA programs find, without a card: its files, the toolkit's spec of them, and NVIDIA's runtime.

The library, the program that counts cards, and the two programs of the toolkit are beside this file.
"""

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.rig import images, nvml
from tests.rig.images import Image
from tests.rig.rig import Rig

IMAGE = "docker.io/local/cuda:1"
VERSION = "570.86.15"
LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"
"""The folder of libraries, in the driver root and in a container."""
NAMES = ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}", "libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}")
"""The names of the driver's libraries in that folder."""
OTHERS = ("/usr/bin/nvidia-smi", f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", "/run/nvidia-persistenced/socket")
"""The driver's other files."""

_HERE = Path(__file__).parent
_DRM_MAJOR = 226


class Driver:
    """The driver of a rig's node."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.root = rig.folder / "driver"
        self.spec = rig.cdi_folder / "nvidia.yaml"
        self._programs = rig.folder / "toolkit"

    def install(self) -> None:
        """Make its files and device nodes, and give the node an image with a CUDA program and without the driver."""
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
        self._put_other_files()
        self._make_drm_nodes()
        self._rig.load_images([_image(program)])

    def _put_other_files(self) -> None:
        cards = [f"/usr/share/nvidia/cards/{gpu.minor}" for gpu in self._rig.nvml.gpus]
        for inside in (*OTHERS, *cards):
            path = self.root / inside.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{inside}\n")

    def _make_drm_nodes(self) -> None:
        folder = self._rig.dev_folder / "dri"
        folder.mkdir()
        for gpu in self._rig.nvml.gpus:
            for name, minor in ((f"card{gpu.minor}", gpu.minor), (f"renderD{128 + gpu.minor}", 128 + gpu.minor)):
                os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(_DRM_MAJOR, minor))

    def write_spec(self) -> None:
        """What nvidia-ctk cdi generate writes for this driver and these cards."""
        hook = self._programs / "nvidia-cdi-hook"
        shutil.copy(_HERE / hook.name, hook)
        hook.chmod(0o755)
        text = (_HERE / "toolkit_spec.yaml").read_text()
        for word, value in {
            "@DEV@": self._rig.dev_folder,
            "@DRIVER@": self.root,
            "@HOOK@": hook,
            "@LIBRARIES@": LIBRARIES,
            "@VERSION@": VERSION,
        }.items():
            text = text.replace(word, str(value))
        part = self.spec.with_suffix(".part")
        part.write_text(text)
        part.rename(self.spec)

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

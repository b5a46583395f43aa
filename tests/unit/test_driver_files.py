"""The driver's files below a driver root, for a host with and without the NVIDIA container toolkit."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from aliquot.agent.devices import Hook, Mount
from aliquot.agent.nvidia.driver_files import DriverFiles

DEBIAN, RED_HAT = "usr/lib/x86_64-linux-gnu", "usr/lib64"
VERSION = "570.86.15"


def install(root: Path, folder: str = DEBIAN, version: str = VERSION) -> None:
    """A driver as its installer leaves it: libraries with its version, and the loader's links to them."""
    libraries = root / folder
    libraries.mkdir(parents=True)
    for library in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        (libraries / f"{library}.so.{version}").touch()
        (libraries / f"{library}.so.1").symlink_to(f"{library}.so.{version}")
    (libraries / "libcuda.so").symlink_to("libcuda.so.1")
    (libraries / f"libnvidia-gpucomp.so.{version}").touch()
    (libraries / "libnvidia-nvvm70.so.4").touch()
    (libraries / "libc.so.6").touch()
    (libraries / "libother.so.1.2.3").touch()


def put(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def files(host: Path, driver_root: str = "/") -> DriverFiles:
    return DriverFiles(driver_root, str(host), "x86_64")


def mounts(host: Path, driver_root: str = "/") -> dict[str, str]:
    edits = files(host, driver_root).edits()
    assert edits is not None
    return {mount.container_path: mount.host_path for mount in edits.mounts}


def names(folder: str, mounted: Iterable[str]) -> set[str]:
    return {path.removeprefix(f"{folder}/") for path in mounted if path.startswith(f"{folder}/")}


LIBRARIES = {f"{name}.so.{VERSION}" for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")} | {
    f"libnvidia-gpucomp.so.{VERSION}",
    "libnvidia-nvvm70.so.4",
}
LINKS = {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}


@pytest.mark.parametrize("folder", [DEBIAN, RED_HAT, "usr/lib/x86_64-linux-gnu/nvidia/current"])
def test_without_the_toolkit_every_library_has_all_its_names_where_any_loader_looks(
    tmp_path: Path, folder: str
) -> None:
    install(tmp_path, folder)
    mounted = mounts(tmp_path)
    for searched in {f"/{DEBIAN}", f"/{RED_HAT}", f"/{folder}"}:
        here = {path for path in names(searched, mounted) if "/" not in path}
        assert here == LIBRARIES | LINKS, searched
        assert mounted[f"{searched}/libcuda.so.1"] == f"/{folder}/libcuda.so.{VERSION}"
        assert mounted[f"{searched}/libcuda.so"] == f"/{folder}/libcuda.so.{VERSION}"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook",)),
        ("/usr/local/nvidia/toolkit/nvidia-cdi-hook", ("nvidia-cdi-hook",)),
        ("/usr/bin/nvidia-ctk", ("nvidia-ctk", "hook")),
    ],
)
def test_with_the_toolkit_its_hook_makes_the_links(tmp_path: Path, program: str, words: tuple[str, ...]) -> None:
    install(tmp_path)
    put(tmp_path, program.lstrip("/"))
    edits = files(tmp_path).edits()
    assert edits is not None
    assert names(f"/{DEBIAN}", (mount.container_path for mount in edits.mounts)) == LIBRARIES
    create, update = edits.hooks
    linked = [
        f"libcuda.so.{VERSION}::/{DEBIAN}/libcuda.so",
        f"libcuda.so.{VERSION}::/{DEBIAN}/libcuda.so.1",
        f"libnvidia-ml.so.{VERSION}::/{DEBIAN}/libnvidia-ml.so.1",
        f"libnvidia-ptxjitcompiler.so.{VERSION}::/{DEBIAN}/libnvidia-ptxjitcompiler.so.1",
    ]
    assert (create.path, create.stage) == (program, "createContainer")
    assert create.arguments[: len(words) + 1] == (*words, "create-symlinks")
    assert create.arguments[len(words) + 1 :] == tuple(word for link in linked for word in ("--link", link))
    assert update == Hook("createContainer", program, (*words, "update-ldcache", "--folder", f"/{DEBIAN}"))


@pytest.mark.parametrize(
    ("root", "folder"),
    [("/run/nvidia/driver", DEBIAN), ("/home/kubernetes/bin/nvidia", "lib64")],
    ids=["GPU Operator", "GKE"],
)
def test_a_driver_root_elsewhere_is_found_and_named_as_the_host_sees_it(tmp_path: Path, root: str, folder: str) -> None:
    install(tmp_path / root.lstrip("/"), folder)
    put(tmp_path / root.lstrip("/"), "bin/nvidia-smi")
    assert str(files(tmp_path, "auto").used) == root
    mounted = mounts(tmp_path, "auto")
    assert mounted["/usr/lib64/libcuda.so.1"] == f"{root}/{folder}/libcuda.so.{VERSION}"
    assert mounted["/usr/bin/nvidia-smi"] == f"{root}/bin/nvidia-smi"


def test_programs_firmware_sockets_and_data_come_along_where_they_are(tmp_path: Path) -> None:
    install(tmp_path)
    put(
        tmp_path,
        "usr/bin/nvidia-smi",
        "usr/bin/other",
        f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        "lib/firmware/nvidia/1.2/gsp_old.bin",
        "run/nvidia-persistenced/socket",
        "etc/OpenCL/vendors/nvidia.icd",
    )
    edits = files(tmp_path).edits()
    assert edits is not None
    rest = [mount for mount in edits.mounts if "/lib64/" not in mount.container_path and DEBIAN not in mount.host_path]
    assert rest == [
        Mount("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        Mount(f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"),
        Mount("/etc/OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors/nvidia.icd"),
        Mount(
            "/run/nvidia-persistenced/socket",
            "/run/nvidia-persistenced/socket",
            ("nosuid", "nodev", "rbind", "rprivate", "noexec"),
        ),
    ]


def test_a_program_behind_a_link_is_mounted_from_where_it_is(tmp_path: Path) -> None:
    """As Debian's alternatives make them; the link is absolute on the host, not here."""
    install(tmp_path)
    put(tmp_path, "usr/lib/nvidia/current/nvidia-smi")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    assert mounts(tmp_path)["/usr/bin/nvidia-smi"] == "/usr/lib/nvidia/current/nvidia-smi"


def test_a_new_version_of_the_driver_is_taken_without_a_restart(tmp_path: Path) -> None:
    install(tmp_path)
    found = files(tmp_path)
    assert found.edits() is not None
    for path in list((tmp_path / DEBIAN).iterdir()):
        path.unlink()
    (tmp_path / DEBIAN).rmdir()
    assert (found.edits(), found.used) == (None, None)
    install(tmp_path, version="580.1")
    edits = found.edits()
    assert edits is not None
    assert f"/{DEBIAN}/libcuda.so.580.1" in [mount.container_path for mount in edits.mounts]


@pytest.mark.parametrize("file", ["libcuda.so.1", "libcuda.so.x", "libcuda.so"])
def test_without_a_libcuda_that_names_a_version_there_are_no_files(tmp_path: Path, file: str) -> None:
    put(tmp_path, f"{DEBIAN}/{file}", f"{DEBIAN}/libnvidia-ml.so.1")
    assert files(tmp_path).edits() is None


def test_links_that_lead_in_a_circle_or_elsewhere_are_left_out(tmp_path: Path) -> None:
    install(tmp_path)
    for name, target in {"libaround.so": "liband.so", "liband.so": "libaround.so", "libx.so": "libc.so.6"}.items():
        (tmp_path / DEBIAN / name).symlink_to(target)
    assert names(f"/{DEBIAN}", mounts(tmp_path)) == LIBRARIES | LINKS

"""Where the agent gets NVIDIA's management library from: a driver root on the host, or the dynamic loader.

tests/e2e/test_fake_nvml.py loads one for real.
"""

from pathlib import Path, PurePosixPath

import pytest

from aliquot.agent.nvidia.driver_library import LIBRARY, DriverLibrary, DriverRoot, find_driver_root
from aliquot.errors import NoDriver

UBUNTU, RED_HAT = "usr/lib/x86_64-linux-gnu", "usr/lib64"


def put(host: Path, folder: str, name: str = LIBRARY) -> Path:
    path = host / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("folder", "root"),
    [
        pytest.param(UBUNTU, "/", id="the host's own, Debian's way"),
        pytest.param(RED_HAT, "/", id="the host's own, Red Hat's way"),
        pytest.param(f"run/nvidia/driver/{UBUNTU}", "/run/nvidia/driver", id="the GPU Operator's container"),
        pytest.param("home/kubernetes/bin/nvidia/lib64", "/home/kubernetes/bin/nvidia", id="GKE's installer"),
    ],
)
def test_the_root_is_the_first_known_one_with_the_library(tmp_path: Path, folder: str, root: str) -> None:
    library = put(tmp_path, folder)
    found = find_driver_root("auto", str(tmp_path))
    assert found == DriverRoot(PurePosixPath(root), tmp_path)
    assert found.find(LIBRARY) == library


def test_the_hosts_own_driver_comes_before_a_container_that_is_left_over(tmp_path: Path) -> None:
    put(tmp_path, f"run/nvidia/driver/{UBUNTU}")
    put(tmp_path, RED_HAT)
    found = find_driver_root("auto", str(tmp_path))
    assert found is not None
    assert found.path == PurePosixPath("/")


def test_a_root_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    put(tmp_path, UBUNTU)
    assert find_driver_root("/opt/driver", str(tmp_path)) is None
    put(tmp_path, f"opt/driver/{RED_HAT}")
    found = find_driver_root("/opt/driver", str(tmp_path))
    assert found is not None
    assert found.here == tmp_path / "opt/driver"


@pytest.mark.parametrize(
    ("target", "is_found"),
    [
        pytest.param("libnvidia-ml.so.550.54", True, id="in its folder"),
        pytest.param(f"/{UBUNTU}/libnvidia-ml.so.550.54", True, id="absolute, from the driver root"),
        pytest.param("/etc/alternatives/nvml", True, id="over another link"),
        pytest.param("libnvidia-ml.so.1", False, id="to itself"),
        pytest.param("gone", False, id="to nothing"),
    ],
)
def test_links_are_followed_as_the_host_follows_them(tmp_path: Path, target: str, is_found: bool) -> None:
    library = put(tmp_path, UBUNTU, "libnvidia-ml.so.550.54")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/nvml").symlink_to(f"/{UBUNTU}/libnvidia-ml.so.550.54")
    (tmp_path / UBUNTU / LIBRARY).symlink_to(target)
    assert DriverRoot(PurePosixPath("/"), tmp_path).find(LIBRARY) == (library if is_found else None)


def test_a_library_that_is_missing_is_told_with_the_places(tmp_path: Path) -> None:
    told = f"no {LIBRARY} below /opt/driver in {tmp_path}"
    library = DriverLibrary("/opt/driver", str(tmp_path))
    assert library.load() == told
    assert DriverLibrary(str(tmp_path)).load() == f"no {LIBRARY} below {tmp_path}"


def test_a_library_that_is_none_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, f"opt/driver/{RED_HAT}")
    with pytest.raises(NoDriver, match=f"the driver's library {path} cannot be loaded: "):
        DriverLibrary("/opt/driver", str(tmp_path)).load()

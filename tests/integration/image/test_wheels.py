"""The wheels of an image are those of the image's Python, whatever Python makes the image."""

import tarfile
from pathlib import Path

import pytest

from image import wheels
from image.tree import Tree
from tests.integration.image import packages


@pytest.mark.parametrize(("python", "numpy"), [("3.11", "numpy==2.4.6"), ("3.13", "numpy==2.5.4")])
def test_markers_are_judged_for_the_images_python(tmp_path: Path, python: str, numpy: str) -> None:
    pins = tmp_path / "run.txt"
    pins.write_text(
        "# exact versions\nclick==8.5.1\n"
        "colorama==0.4.6 ; sys_platform == 'win32'\n"
        "numpy==2.4.6 ; python_full_version < '3.12'\nnumpy==2.5.4 ; python_full_version >= '3.12'\n"
    )
    assert wheels.pinned(pins, python) == ["click==8.5.1", numpy]


def test_wheels_that_are_there_are_not_asked_for_again(tmp_path: Path) -> None:
    held = [packages.wheel(tmp_path, "nvidia_ml_py", "13.1"), packages.wheel(tmp_path, "click", "8.5")]
    assert wheels.download(["nvidia-ml-py==13.1", "click==8.5"], "3.13", tmp_path) == sorted(held)


def test_a_wheels_platform_files_go_beside_its_packages(tmp_path: Path) -> None:
    made = packages.wheel(tmp_path, "odd", files={"odd-1.0.data/platlib/odd/fast.so": b"code"})
    tree = Tree()
    wheels.unpack([made], tree, "3.13")
    assert tree.entries["usr/local/lib/python3.13/dist-packages/odd/fast.so"].content == b"code"


def test_a_hard_link_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        (tmp_path / "one").write_bytes(b"same")
        (tmp_path / "two").hardlink_to(tmp_path / "one")
        tar.add(tmp_path / "one", "./usr/bin/one")
        tar.add(tmp_path / "two", "./usr/bin/two")
    tree = Tree()
    with tarfile.open(tmp_path / "data.tar") as tar:
        tree.add_tar(tar)
    assert tree.entries["usr/bin/two"].content == tree.entries["usr/bin/one"].content == b"same"

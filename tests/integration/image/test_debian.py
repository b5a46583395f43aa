"""apt with folders of its own: what it is asked, what is kept, and what is said when it is not there."""

from pathlib import Path

import pytest

from image.debian import Debian, Package
from image.errors import ImageError
from image.sources import Sources
from tests.integration.image import packages


def _debian(folder: Path, program: Path | str, said: list[str] | None = None) -> Debian:
    keyring = folder / "keyring.gpg"
    keyring.touch()
    return Debian(
        folder / "cache",
        release="trixie",
        architecture="amd64",
        sources=Sources.at("http://debian.example/"),
        progress=(said if said is not None else []).append,
        program=str(program),
        keyring=keyring,
    )


def test_packages_and_what_they_need_are_downloaded_once(tmp_path: Path) -> None:
    apt = packages.fake_apt(tmp_path, packages.debian(tmp_path / "made"))
    said: list[str] = []
    got = _debian(tmp_path, apt, said).get(["python3"])
    assert [package.name for package in got] == sorted(package.name for package in packages.debian(tmp_path / "made"))
    assert any("getting 4 of 4" in line for line in said)
    assert _debian(tmp_path, apt).get(["python3"]) == got
    assert (tmp_path / "calls").read_text().count(" download ") == 1


def test_apt_is_told_to_use_our_folders_and_debians_key(tmp_path: Path) -> None:
    apt = packages.fake_apt(tmp_path, packages.debian(tmp_path / "made"))
    _debian(tmp_path, apt).get(["python3"])
    folder = tmp_path / "cache" / "trixie-amd64"
    calls = (tmp_path / "calls").read_text()
    assert all(f"{name}={folder}" in calls for name in ("Dir::State", "Dir::Cache", "Dir::Etc::sourcelist"))
    sources = (folder / "sources.list").read_text().splitlines()
    assert sources[0] == f"deb [signed-by={tmp_path}/keyring.gpg] http://debian.example/debian trixie main"
    assert any("debian-security trixie-security" in line for line in sources)


def test_without_apt_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="run this on Debian or Ubuntu"):
        _debian(tmp_path, tmp_path / "no-apt-get")


def test_without_debians_keys_the_error_names_their_package(tmp_path: Path) -> None:
    apt = packages.fake_apt(tmp_path, [])
    with pytest.raises(ImageError, match="apt-get install debian-archive-keyring"):
        Debian(
            tmp_path,
            release="trixie",
            architecture="amd64",
            sources=Sources.at("http://debian.example"),
            progress=lambda _: None,
            program=str(apt),
            keyring=tmp_path / "none.gpg",
        )


def test_a_failure_of_apt_is_passed_on(tmp_path: Path) -> None:
    apt = packages.fake_apt(tmp_path, [], update=100)
    with pytest.raises(ImageError, match="apt-get update failed"):
        _debian(tmp_path, apt).get(["python3"])


def test_an_epoch_is_written_as_apt_writes_it_in_names_of_files() -> None:
    assert Package("zlib1g", "1:1.3", "amd64").file == "zlib1g_1%3a1.3_amd64.deb"

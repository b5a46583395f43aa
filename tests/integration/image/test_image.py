"""The archive that `make image` writes, made of tiny packages: no network, no apt, no root."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import aliquot
from image import archive, building
from image.archive import Image
from image.errors import ImageError
from image.tree import TIME, Tree
from tests.integration.image import packages

_REQUIREMENT = "usr/local/lib/python3.13/dist-packages/needed/__init__.py"


def _pretend_compiled(trees: Sequence[Tree], python: str) -> None:
    trees[-1].file(f"usr/local/compiled-for-{python}", b"")


def _images(folder: Path, registry: str = "", **changes: Any) -> list[Image]:
    debian = changes.get("debian") or packages.debian(folder / "debian")
    own = changes.get("own") or packages.wheel(folder / "own", "aliquot", programs=packages.PROGRAMS)
    return building.images(
        debian,
        lambda _python: [packages.wheel(folder / "wheels", name) for name in ("needed", "numpy")],
        own,
        registry=registry,
        moment=1_700_000_000,
        compiled=_pretend_compiled,
        progress=lambda _: None,
    )


class Archive:
    """An archive as a program that loads it sees it."""

    def __init__(self, path: Path) -> None:
        self.files = _contents(path)

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        content = self.files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        assert len(content) == descriptor["size"]
        return content


@pytest.fixture
def written(tmp_path: Path) -> Archive:
    path = tmp_path / "images.tar"
    archive.write(_images(tmp_path), path)
    return Archive(path)


def _files(tmp_path: Path) -> dict[str, tarfile.TarInfo]:
    (first, *_) = _images(tmp_path)
    found: dict[str, tarfile.TarInfo] = {}
    for number, layer in enumerate(first.layers):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(layer.tar)
        with tarfile.open(path) as tar:
            found |= {member.name: member for member in tar}
    return found


def test_the_same_inputs_give_the_same_archive_wherever_and_whenever_it_is_made(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.tar"
        archive.write(_images(tmp_path / name), path)
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_every_digest_and_size_is_that_of_the_content(written: Archive) -> None:
    for described in written.json("index.json")["manifests"]:
        manifest = json.loads(written.blob(described))
        configuration = json.loads(written.blob(manifest["config"]))
        assert len(configuration["rootfs"]["diff_ids"]) == len(manifest["layers"])
        for layer in manifest["layers"]:
            written.blob(layer)


def test_the_archive_is_an_oci_layout_and_what_docker_saves(written: Archive) -> None:
    assert written.json("oci-layout") == {"imageLayoutVersion": "1.0.0"}
    names = {f"docker.io/aliquot/{name}:{aliquot.__version__}" for name in (*packages.PROGRAMS[1:], "agent")}
    names.add(f"docker.io/library/aliquot:{aliquot.__version__}")
    manifests = written.json("index.json")["manifests"]
    assert {each["annotations"]["io.containerd.image.name"] for each in manifests} == names
    saved = written.json("manifest.json")
    assert saved[0]["RepoTags"] == [f"aliquot:{aliquot.__version__}"]
    assert all({each["Config"], *each["Layers"]} <= written.files.keys() for each in saved)


def test_flavours_share_every_layer_and_those_of_the_agent_lack_one(written: Archive) -> None:
    layers = {_program(each): each["Layers"] for each in written.json("manifest.json")}
    for_servers = {tuple(layers[name]) for name in packages.SERVERS}
    for_agents = {tuple(layers[name]) for name in ("agent", *packages.AGENTS)}
    ((*debian_and_needed, for_server, ours),) = for_servers
    assert for_agents == {(*debian_and_needed, ours)}
    assert "numpy/__init__.py" in _listed(written.files[for_server])


def _program(saved: dict[str, Any]) -> str:
    (name,) = saved["RepoTags"]
    return str(name).rpartition(":")[0].rpartition("/")[2]


def _listed(layer: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        return "\n".join(tar.getnames())


@pytest.mark.parametrize(
    ("program", "default"),
    [
        pytest.param("aliquot", ["aliquot", "--help"], id="aliquot"),
        pytest.param("gpushare-schd-extender", ["gpushare-schd-extender"], id="gpushare"),
        pytest.param("elastic-gpu-scheduler", ["elastic-gpu-scheduler"], id="elastic-gpu"),
        pytest.param("nano-gpu-scheduler", ["nano-gpu-scheduler"], id="nano-gpu"),
        pytest.param("gpuserver", ["gpuserver"], id="nvidia-gpu-scheduler"),
        pytest.param("agent", ["aliquot", "agent"], id="the agent"),
        pytest.param("gpushare-device-plugin-v2", ["gpushare-device-plugin-v2"], id="gpushare's device plugin"),
        pytest.param("elastic-gpu-agent", ["elastic-gpu-agent"], id="elastic-gpu's agent"),
        pytest.param("gpuserver-ds", ["gpuserver-ds"], id="nvidia-gpu-scheduler's agent"),
    ],
)
def test_each_flavour_starts_its_own_program(written: Archive, program: str, default: list[str]) -> None:
    config = _configuration(written, program)
    assert config.get("Entrypoint", []) + config.get("Cmd", []) == default


def test_gpu_admission_starts_with_the_originals_flags_and_those_of_the_manifest(
    written: Archive, tmp_path: Path
) -> None:
    flags = _started(written, "gpu-admission", tmp_path, {"LOG_LEVEL": "4", "EXTRA_FLAGS": "--pprofAddress= -x"})
    assert flags[:3] == ["--address=0.0.0.0:3456", "--v=4", "--logtostderr=true"]
    assert flags[-2:] == ["--pprofAddress=", "-x"]


def _started(written: Archive, program: str, folder: Path, variables: dict[str, str]) -> list[str]:
    """The flags with which a flavour's own command starts its program."""
    stand_in = folder / program
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    config = _configuration(written, program)
    environment = dict(each.split("=", 1) for each in config["Env"])
    environment |= {"PATH": f"{folder}:{environment['PATH']}", **variables}
    started = subprocess.run(config["Cmd"], env=environment, capture_output=True, text=True, check=True)
    return started.stdout.split()


def test_only_the_originals_device_plugins_see_all_gpus(written: Archive) -> None:
    """Under NVIDIA's container runtime. The others must not get cards that nobody gave them."""
    for program in (*packages.PROGRAMS, "agent"):
        environment = dict(each.split("=", 1) for each in _configuration(written, program)["Env"])
        assert environment.get("NVIDIA_VISIBLE_DEVICES") == ("all" if program in packages.AGENTS else None)
        assert "/usr/local/bin" in environment["PATH"].split(":")


def test_gpu_manager_starts_with_the_originals_flags_and_those_of_the_manifest(
    written: Archive, tmp_path: Path
) -> None:
    """The first and the last manifest of the original."""
    environment = {"NODE_NAME": "n1", "LOG_LEVEL": "4", "EXTRA_FLAGS": "--incluster-mode=true --logtostderr=false"}
    flags = _started(written, "gpu-manager", tmp_path, environment)
    assert flags[:2] == ["--hostname-override=n1", "--share-mode=true"]
    assert {"--v=4", "--log-dir=/var/log/gpu-manager"} <= set(flags)
    assert flags[-2:] == ["--incluster-mode=true", "--logtostderr=false"]


def test_the_folder_of_gpu_managers_log_is_there_without_a_mount(tmp_path: Path) -> None:
    assert _files(tmp_path)["var/log/gpu-manager"].isdir()


def test_elastic_gpus_installer_is_there_and_changes_nothing(tmp_path: Path) -> None:
    assert _files(tmp_path)["usr/bin/install.sh"].mode == 0o755


def test_names_carry_the_registry_that_was_asked_for(tmp_path: Path) -> None:
    names = [image.full_name for image in _images(tmp_path, registry="registry.example.com/team/")]
    assert names[0] == f"registry.example.com/team/aliquot:{aliquot.__version__}"
    assert names[1] == f"registry.example.com/team/aliquot/gpu-admission:{aliquot.__version__}"


def test_files_of_packages_are_where_a_merged_usr_has_them(tmp_path: Path) -> None:
    files = _files(tmp_path)
    assert {name: files[name].linkname for name in ("bin", "sbin", "lib", "lib64")} == {
        name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")
    }
    assert files["usr/bin/dash"].isreg()
    assert files["usr/bin/sh"].linkname == "dash"
    assert "bin/dash" not in files


def test_entries_are_sorted_owned_by_root_and_of_one_time(tmp_path: Path) -> None:
    for layer in _images(tmp_path)[0].layers:
        path = tmp_path / "layer.tar"
        path.write_bytes(layer.tar)
        with tarfile.open(path) as tar:
            members = tar.getmembers()
        assert [each.name for each in members] == sorted(each.name for each in members)
        assert {(each.uid, each.gid, each.mtime) for each in members} == {(0, 0, TIME)}


def test_pages_and_news_are_left_out_and_licences_stay(tmp_path: Path) -> None:
    files = _files(tmp_path)
    assert "usr/share/doc/dash/copyright" in files
    assert not {"usr/share/man/man1/dash.1", "usr/share/doc/dash/changelog"} & set(files)


def test_what_install_scripts_would_make_is_there(tmp_path: Path) -> None:
    (debian, *_) = _images(tmp_path)[0].layers
    path = tmp_path / "debian.tar"
    path.write_bytes(debian.tar)
    files = _contents(path)
    assert files["etc/ssl/certs/ca-certificates.crt"] == b"ab"
    assert b"aliquot:x:65532:65532:" in files["etc/passwd"]
    assert files["var/lib/dpkg/status"].count(b"Status: install ok installed") == 4
    assert _files(tmp_path)["tmp"].mode == 0o1777


def test_programs_of_the_wheel_run_with_the_images_python(tmp_path: Path) -> None:
    files = _files(tmp_path)
    for program in packages.PROGRAMS:
        assert files[f"usr/local/bin/{program}"].mode == 0o755
        assert files[f"usr/bin/{program}"].linkname == f"../local/bin/{program}", "as the originals' manifests name it"
    assert _REQUIREMENT in files
    assert "usr/local/compiled-for-3.13" in files


def test_a_wheel_without_a_program_makes_no_image_and_the_error_names_it(tmp_path: Path) -> None:
    own = packages.wheel(tmp_path / "own", "aliquot", programs=["aliquot", "gpu-admission", "gpushare-schd-extender"])
    with pytest.raises(ImageError, match="elastic-gpu-scheduler"):
        _images(tmp_path, own=own)


def test_packages_without_python_make_no_image(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no Python"):
        _images(tmp_path, debian=[packages.debian_package(tmp_path, "dash", files={"./bin/dash": b""})])


def test_a_file_that_is_no_package_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken_1.0_all.deb"
    broken.write_bytes(b"<html>")
    with pytest.raises(ImageError, match=r"broken_1.0_all.deb is no Debian package"):
        _images(tmp_path, debian=[broken])


def _configuration(written: Archive, program: str) -> dict[str, Any]:
    for described in written.json("index.json")["manifests"]:
        manifest = json.loads(written.blob(described))
        configuration = json.loads(written.blob(manifest["config"]))["config"]
        if configuration["Labels"]["org.opencontainers.image.title"] == program:
            found: dict[str, Any] = configuration
            return found
    raise AssertionError(f"no flavour {program}")


def _contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        opened = {member.name: tar.extractfile(member) for member in tar if member.isreg()}
        return {name: held.read() for name, held in opened.items() if held is not None}

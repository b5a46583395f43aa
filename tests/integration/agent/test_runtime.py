"""The container runtime is asked whether it injects CDI devices, before anything is registered."""

from pathlib import Path

import pytest

from aliquot.agent import runtime
from aliquot.agent.runtime import Handler
from aliquot.errors import BadConfig
from tests.fakes import FakeRuntime

CDI = Path("/var/run/cdi")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param('{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}', id="containerd 1.7 and 2.1"),
        pytest.param('{"enableCDI":true,"cdiSpecDirs":["/run/cdi/"]}', id="the same folder by its other name"),
        pytest.param('{"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}', id="containerd 2.4, which no longer tells"),
    ],
)
async def test_a_runtime_with_cdi_is_accepted(folder: Path, config: str) -> None:
    async with FakeRuntime(folder / "cri.sock", {"config": config}):
        assert await runtime.lacks(folder / "cri.sock", CDI) == ""


@pytest.mark.parametrize(
    ("info", "text"),
    [
        pytest.param({"config": '{"enableCDI":false}'}, "has CDI disabled; set enable_cdi = true", id="CDI is off"),
        pytest.param({"config": "{}"}, "has CDI disabled", id="a runtime that knows no CDI"),
        pytest.param({}, "has CDI disabled", id="a runtime that tells nothing"),
        pytest.param(
            {"config": '{"enableCDI":true,"cdiSpecDirs":["/etc/cdi"]}'},
            "reads CDI specs from /etc/cdi, not from /var/run/cdi: set --cdi-folder",
            id="another folder",
        ),
        pytest.param({"config": '{"enableCDI":true}'}, "reads CDI specs from nowhere", id="no folder at all"),
    ],
)
async def test_why_a_runtime_would_ignore_our_specs_is_told(folder: Path, info: dict[str, str], text: str) -> None:
    async with FakeRuntime(folder / "cri.sock", info):
        assert text in await runtime.lacks(folder / "cri.sock", CDI)


CONFIG = """{"cdiSpecDirs": ["/etc/cdi"], "containerd": {"defaultRuntimeName": "nvidia", "runtimes": {
    "runc": {"runtimeType": "io.containerd.runc.v2", "runtimePath": "", "options": null},
    "nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/opt/nvidia-container-runtime"}},
    "shim": {"runtimePath": "/opt/shim", "options": {"SystemdCgroup": true}}}}}"""
"""As containerd 1.7 and 2.4 tell it."""


async def test_the_runtime_tells_through_which_programs_it_starts_containers(folder: Path) -> None:
    async with FakeRuntime(folder / "cri.sock", {"config": CONFIG}):
        assert await runtime.handlers(folder / "cri.sock") == (
            Handler("runc", "", is_default=False),
            Handler("nvidia", "/opt/nvidia-container-runtime", is_default=True),
            Handler("shim", "/opt/shim", is_default=False),
        )


@pytest.mark.parametrize("config", ["{}", '{"containerd":null}', '{"containerd":{"runtimes":null}}'])
async def test_a_runtime_that_does_not_tell_its_programs_has_none(folder: Path, config: str) -> None:
    async with FakeRuntime(folder / "cri.sock", {"config": config}):
        assert await runtime.handlers(folder / "cri.sock") == ()


async def test_users_cannot_make_the_list_of_containers_too_long_to_read(folder: Path) -> None:
    """kubelet copies the `preStop` hook of a container, which may have a megabyte, into what the runtime lists."""
    containers = {f"{'x' * 2**20}-{number}": "running" for number in range(16)}
    async with FakeRuntime(folder / "cri.sock", {}, {**containers, "uid": "running"}):
        assert "uid" in await runtime.running(folder / "cri.sock")


async def test_a_runtime_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(BadConfig, match=f"the container runtime at {folder}/cri.sock does not answer"):
        await runtime.lacks(folder / "cri.sock", CDI)


async def test_a_runtime_that_reports_in_an_unknown_format_is_named(folder: Path) -> None:
    async with FakeRuntime(folder / "cri.sock", {"config": "nonsense"}):
        with pytest.raises(BadConfig, match="reports its configuration in an unknown format"):
            await runtime.lacks(folder / "cri.sock", CDI)

"""One way of injection per node, and NVIDIA's container runtime, which must add nothing to it."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from aliquot.agent.nvidia.container_runtime import NvidiaRuntime, find_nvidia_runtime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.agent.runtime import Handler
from tests.factories import make_gpu

GPUS = [make_gpu(0), make_gpu(1)]
UUIDS = "GPU-n1-0,GPU-n1-1"
RUNC = Handler("runc", "", is_default=True)
NVIDIA = Handler("nvidia", "/usr/bin/nvidia-container-runtime", is_default=False)
OPEN = "gets all cards if its image or pod sets NVIDIA_VISIBLE_DEVICES=all"
LIBRARIES = "usr/lib64"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with a driver and without the toolkit."""
    folder = tmp_path / LIBRARIES
    folder.mkdir(parents=True)
    for name in ("libcuda.so.570.1", "libnvidia-ml.so.1"):
        (folder / name).touch()
    return tmp_path


def write_config(host: Path, text: str, folder: str = "etc") -> None:
    path = host / folder / "nvidia-container-runtime" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def injection(host: Path, runtime: NvidiaRuntime | None) -> Injection:
    return Injection(ToolkitSpecs([host / "etc/cdi"], host), DriverFiles("/", str(host)), runtime)


def told(host: Path, runtime: NvidiaRuntime | None) -> list[dict[str, Any]]:
    with capture_logs() as lines:
        injection(host, runtime).read()
    return [dict(line) for line in lines]


def test_without_nvidias_runtime_the_variables_stay_the_dialects(host: Path) -> None:
    assert find_nvidia_runtime([RUNC], host) is None
    edits = injection(host, None).edits(GPUS)
    assert edits.environment == {}
    assert edits.mounts != ()


@pytest.mark.parametrize("is_default", [True, False], ids=["the default", "by a RuntimeClass"])
def test_if_our_spec_has_the_drivers_files_nvidias_runtime_is_told_to_add_nothing(host: Path, is_default: bool) -> None:
    runtime = NvidiaRuntime(("nvidia",), is_default, other_variables=("DOCKER_RESOURCE_GPU",))
    assert injection(host, runtime).edits(GPUS).environment == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "DOCKER_RESOURCE_GPU": "void",
    }


def test_if_not_it_is_told_the_cards_and_that_they_are_all(tmp_path: Path) -> None:
    """Each of these adds devices or files to a container that names a card."""
    runtime = NvidiaRuntime(("nvidia",), is_default=True, other_variables=("DOCKER_RESOURCE_GPU",))
    edits = injection(tmp_path, runtime).edits(GPUS)
    assert edits.mounts == ()
    assert edits.environment == {
        "NVIDIA_VISIBLE_DEVICES": UUIDS,
        "DOCKER_RESOURCE_GPU": UUIDS,
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_IMEX_CHANNELS": "",
        "NVIDIA_NVSWITCH": "",
        "NVIDIA_GDS": "",
        "NVIDIA_GDRCOPY": "",
        "NVIDIA_MOFED": "",
        "NVIDIA_MIG_CONFIG_DEVICES": "",
        "NVIDIA_MIG_MONITOR_DEVICES": "",
    }


@pytest.mark.parametrize(
    ("runtime", "has_files", "visible"),
    [
        pytest.param(None, True, None, id="without NVIDIA's runtime"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=True), False, UUIDS, id="it is the default"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=False), True, "void", id="it is not the default"),
        pytest.param(
            NvidiaRuntime(("nvidia",), is_default=True, from_environment=False),
            True,
            "void",
            id="it accepts no variables",
        ),
    ],
)
def test_without_cdi_nvidias_runtime_adds_the_files_if_it_can_and_else_they_need_no_hook(
    host: Path, runtime: NvidiaRuntime | None, has_files: bool, visible: str | None
) -> None:
    """The toolkit is there, with its hook and a spec that relies on it."""
    (host / "usr/bin").mkdir()
    (host / "usr/bin/nvidia-cdi-hook").touch()
    (host / "etc/cdi").mkdir(parents=True)
    (host / "etc/cdi/nvidia.yaml").write_text(
        """
        kind: management.nvidia.com/gpu
        containerEdits: {hooks: [{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook}]}
        """
    )
    way = injection(host, runtime)
    way.read()
    assert way.edits(GPUS).hooks != ()
    edits = way.edits(GPUS, with_cdi=False)
    assert edits.hooks == ()
    assert bool(edits.mounts) is has_files
    assert edits.environment.get("NVIDIA_VISIBLE_DEVICES") == visible


@pytest.mark.parametrize("runtime", [None, NvidiaRuntime(("nvidia",), is_default=True, other_variables=("OTHER",))])
def test_every_variable_that_could_bring_other_devices_is_known(host: Path, runtime: NvidiaRuntime | None) -> None:
    decisive = injection(host, runtime).decisive_variables
    assert decisive >= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_GDS", "NVIDIA_MIG_CONFIG_DEVICES"}
    assert ("OTHER" in decisive) is (runtime is not None)
    assert injection(host, runtime).limited_variables == {"NVIDIA_DRIVER_CAPABILITIES"}
    assert "NVIDIA_DRIVER_CAPABILITIES" not in decisive, "pods may set it to a part of what we give"


@pytest.mark.parametrize(
    "runtime", [None, NvidiaRuntime(("nvidia",), is_default=True, from_environment=False)], ids=["none", "obeys none"]
)
def test_no_variable_brings_devices_where_nobody_obeys_it(host: Path, runtime: NvidiaRuntime | None) -> None:
    driver = DriverFiles("/", str(host))
    way = Injection(ToolkitSpecs([]), driver, runtime, is_complete=True)
    assert way.decisive_variables == way.limited_variables == frozenset()


def test_if_nobody_knows_whether_nvidias_runtime_is_there_it_adds_no_more_than_computing_needs(tmp_path: Path) -> None:
    """The image's own variables would widen what a container gets. The dialect's name the cards."""
    environment = injection(tmp_path, None).edits(GPUS, with_cdi=False).environment
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert {value for name, value in environment.items() if name != "NVIDIA_DRIVER_CAPABILITIES"} == {""}
    assert "NVIDIA_VISIBLE_DEVICES" not in environment
    known = Injection(ToolkitSpecs([]), DriverFiles("/", str(tmp_path)), None, is_complete=True)
    assert known.edits(GPUS, with_cdi=False).environment == {}


@pytest.mark.parametrize(
    ("program", "folder"),
    [
        ("/usr/bin/nvidia-container-runtime", "etc"),
        ("/usr/bin/nvidia-container-runtime.cdi", "etc"),
        ("/usr/local/nvidia/toolkit/nvidia-container-runtime", "usr/local/nvidia/toolkit/.config"),
    ],
    ids=["a package", "another of its programs", "the GPU Operator"],
)
def test_its_configuration_is_found_where_it_reads_it(tmp_path: Path, program: str, folder: str) -> None:
    write_config(
        tmp_path,
        """
        accept-nvidia-visible-devices-envvar-when-unprivileged = false
        accept-nvidia-visible-devices-as-volume-mounts = true
        swarm-resource = "DOCKER_RESOURCE_GPU, OTHER"
        [nvidia-container-runtime]
        mode = "auto"
        """,
        folder,
    )
    assert find_nvidia_runtime([RUNC, Handler("nvidia", program, is_default=False)], tmp_path) == NvidiaRuntime(
        ("nvidia",),
        is_default=False,
        config=f"/{folder}/nvidia-container-runtime/config.toml",
        from_environment=False,
        from_mounts=True,
        other_variables=("DOCKER_RESOURCE_GPU", "OTHER"),
    )


def test_without_a_configuration_it_does_what_is_nvidias_default(tmp_path: Path) -> None:
    assert find_nvidia_runtime([NVIDIA], tmp_path) == NvidiaRuntime(
        ("nvidia",), is_default=False, from_environment=True, from_mounts=False
    )


@pytest.mark.parametrize(
    "text",
    ["x", "swarm-resource = 7", "a = " + "[" * 10_000, "\ud800", "#" * 65537],
    ids=["no TOML", "a number", "deep", "no text", "long"],
)
def test_a_configuration_that_cannot_be_read_counts_as_open_and_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "etc" / "nvidia-container-runtime" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode(errors="surrogatepass"))
    with capture_logs() as lines:
        found = find_nvidia_runtime([NVIDIA], tmp_path)
    assert found is not None
    assert found.from_environment
    assert [line["path"] for line in lines] == ["/etc/nvidia-container-runtime/config.toml"]


def test_the_way_of_injection_is_one_line(host: Path) -> None:
    (line,) = told(host, None)
    assert (line["source"], line["log_level"]) == ("driver root /", "info")
    assert line["nvidia_runtime"] == "not configured in the container runtime"


def test_it_is_told_again_when_it_changes(host: Path) -> None:
    way = injection(host, None)
    (host / "etc/cdi").mkdir(parents=True)
    with capture_logs() as lines:
        way.read()
        way.read()
        (host / "etc/cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
        way.read()
    assert [line["source"] for line in lines] == ["driver root /", str(host / "etc/cdi/nvidia.yaml")]


@pytest.mark.parametrize(
    ("runtime", "is_said"),
    [
        pytest.param(None, True, id="nobody adds them"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=True), False, id="NVIDIA's runtime does"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=False), True, id="it does for a RuntimeClass"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=True, from_environment=False), True, id="it may not"),
    ],
)
def test_missing_driver_files_are_told(tmp_path: Path, runtime: NvidiaRuntime | None, is_said: bool) -> None:
    said = [line for line in told(tmp_path, runtime) if "will not find the driver's libraries" in line["event"]]
    assert bool(said) is is_said


@pytest.mark.parametrize(
    ("runtime", "warnings"),
    [
        pytest.param(None, [], id="without it"),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=True), [f"every container that asks for no GPU {OPEN}"]),
        pytest.param(
            NvidiaRuntime(("nvidia",), is_default=False),
            [f"every container of a RuntimeClass with handler nvidia that asks for no GPU {OPEN}"],
        ),
        pytest.param(NvidiaRuntime(("nvidia",), is_default=True, from_environment=False), [], id="closed"),
        pytest.param(
            NvidiaRuntime(("nvidia",), is_default=True, from_environment=False, from_mounts=True),
            ["every container gets the cards that it names as mounts of /dev/null, whatever else it was given"],
        ),
    ],
)
def test_what_stays_open_is_told_with_the_way_out(
    host: Path, runtime: NvidiaRuntime | None, warnings: list[str]
) -> None:
    said = [line for line in told(host, runtime) if line["log_level"] == "warning"]
    assert [line["event"] for line in said] == warnings
    assert all("/etc/nvidia-container-runtime/config.toml" in line["what"] for line in said)

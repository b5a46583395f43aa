"""CDI specs of the NVIDIA container toolkit: what a container with given cards takes from them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aliquot.agent.devices import ContainerEdits, DeviceNode, Hook, Mount
from aliquot.agent.nvidia.toolkit_spec import ToolkitSpecs
from aliquot.model import Gpu
from tests.factories import make_gpu

GPUS = [make_gpu(index, minor=1 - index) for index in range(2)]
"""Two cards whose device nodes are numbered against the driver's order."""
PROGRAM = "/usr/bin/nvidia-cdi-hook"


def hook(*words: str) -> dict[str, Any]:
    args = ["nvidia-cdi-hook", *words]
    return {"hookName": "createContainer", "path": PROGRAM, "args": args, "env": ["NVIDIA_CTK_DEBUG=false"]}


def links(minor: int) -> dict[str, Any]:
    return hook("create-symlinks", "--link", f"../card{minor}::/dev/dri/by-path/pci-0000:0{minor}:00.0-card")


def card(minor: int) -> dict[str, Any]:
    nodes = [
        {"path": f"/dev/nvidia{minor}", "hostPath": f"/driver/dev/nvidia{minor}"},
        {"path": f"/dev/dri/card{minor}"},
    ]
    return {"deviceNodes": nodes, "hooks": [links(minor)]}


COMMON: dict[str, Any] = {
    "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "NVIDIA_VISIBLE_DEVICES=void"],
    "deviceNodes": [{"path": "/dev/nvidiactl"}],
    "hooks": [hook("update-ldcache", "--folder", "/usr/lib64")],
    "mounts": [
        {
            "hostPath": "/usr/lib64/libcuda.so.570.1",
            "containerPath": "/usr/lib64/libcuda.so.570.1",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }
    ],
}


def spec(kind: str = "nvidia.com/gpu", **changes: Any) -> dict[str, Any]:
    """As nvidia-ctk writes it: each card under its index and its UUID, and one device with all."""
    devices = [{"name": name, "containerEdits": card(g.minor)} for g in GPUS for name in (str(g.index), g.uuid)]
    every = {"deviceNodes": [node for gpu in GPUS for node in card(gpu.minor)["deviceNodes"]]}
    devices.append({"name": "all", "containerEdits": every})
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, "containerEdits": COMMON, **changes}


def edits(folder: Path, *gpus: Gpu, host_root: Path = Path("/nowhere")) -> ContainerEdits | None:
    specs = ToolkitSpecs([folder], host_root)
    specs.read()
    return specs.edits(gpus)


def hook_of(written: dict[str, Any]) -> Hook:
    return Hook("createContainer", PROGRAM, tuple(written["args"]), ("NVIDIA_CTK_DEBUG=false",))


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_container_gets_everything_of_its_card_and_nothing_of_another(tmp_path: Path, form: str) -> None:
    write = yaml.safe_dump if form == "yaml" else json.dumps
    (tmp_path / f"nvidia.{form}").write_text(write(spec()))
    assert edits(tmp_path, GPUS[0]) == ContainerEdits(
        {"NVIDIA_CTK_LIBCUDA_DIR": "/usr/lib64"},
        (
            DeviceNode("/dev/nvidiactl", "/dev/nvidiactl"),
            DeviceNode("/dev/nvidia1", "/driver/dev/nvidia1"),
            DeviceNode("/dev/dri/card1", "/dev/dri/card1"),
        ),
        (Mount("/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so.570.1"),),
        (hook_of(COMMON["hooks"][0]), hook_of(links(1))),
    )


def test_a_container_with_two_cards_gets_what_they_share_once(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec()))
    both = edits(tmp_path, *GPUS)
    assert both is not None
    assert [node.path for node in both.device_nodes] == [
        "/dev/nvidiactl",
        *("/dev/nvidia1", "/dev/dri/card1", "/dev/nvidia0", "/dev/dri/card0"),
    ]
    assert len(both.mounts) == 1
    assert both.hooks == tuple(map(hook_of, (COMMON["hooks"][0], links(1), links(0))))


def test_every_field_of_a_device_node_a_mount_and_a_hook_is_taken(tmp_path: Path) -> None:
    common = {
        "deviceNodes": [
            {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 195, "minor": 9}
            | {"fileMode": 438, "permissions": "rw", "uid": 1, "gid": 2}
        ],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["rbind"], "type": "bind"}],
        "hooks": [{"hookName": "poststop", "path": "/c", "timeout": 7}],
        "additionalGids": [44],
    }
    (tmp_path / "nvidia.json").write_text(json.dumps(spec("management.nvidia.com/gpu", containerEdits=common)))
    assert edits(tmp_path, GPUS[0]) == ContainerEdits(
        {},
        (DeviceNode("/dev/a", "/dev/b", "c", 195, 9, 438, "rw", 1, 2),),
        (Mount("/b", "/a", ("rbind",), "bind"),),
        (Hook("poststop", "/c", timeout=7),),
        (44,),
    )


@pytest.mark.parametrize(
    ("name", "minor"),
    [
        pytest.param("1", 1, id="the index is another card's"),
        pytest.param("0", 0, id="the numbers have changed since"),
        pytest.param("GPU-other", 1, id="another card was in its place"),
        pytest.param("all", 1, id="not a card"),
    ],
)
def test_a_device_that_may_be_another_card_is_not_taken(tmp_path: Path, name: str, minor: int) -> None:
    devices = [{"name": name, "containerEdits": card(minor)}]
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec(devices=devices)))
    assert edits(tmp_path, GPUS[0]) is None


@pytest.mark.parametrize(
    "node",
    [
        {"path": "/dev/nvidia1", "hostPath": "/dev/nvidia0"},
        {"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 0},
    ],
    ids=["another path on the host", "another number"],
)
def test_a_device_node_that_is_another_card_under_a_false_name_is_not_taken(tmp_path: Path, node: Any) -> None:
    devices = [{"name": GPUS[0].uuid, "containerEdits": {"deviceNodes": [node]}}]
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec(devices=devices)))
    assert edits(tmp_path, GPUS[0]) is None


def test_a_mig_instance_is_known_by_its_uuid_alone(tmp_path: Path) -> None:
    instance = make_gpu(0, minor=1, uuid="MIG-1", parent=GPUS[0].uuid)
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec()))
    assert edits(tmp_path, instance) is None
    nodes = [{"path": "/dev/nvidia1"}, {"path": "/dev/nvidia-caps/nvidia-cap12"}]
    devices = [{"name": "MIG-1", "containerEdits": {"deviceNodes": nodes}}]
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec(devices=devices)))
    found = edits(tmp_path, instance)
    assert found is not None
    assert "/dev/nvidia-caps/nvidia-cap12" in [node.path for node in found.device_nodes]


def test_of_the_spec_for_management_only_the_common_part_is_used_and_only_without_a_better_one(tmp_path: Path) -> None:
    every = [{"name": "all", "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{n}"} for n in range(2)]}}]
    other = {"mounts": [{"hostPath": "/a", "containerPath": "/a"}]}
    management = spec("management.nvidia.com/gpu", devices=every, containerEdits=other)
    (tmp_path / "management.nvidia.com-gpu.yaml").write_text(yaml.safe_dump(management))
    assert edits(tmp_path, GPUS[0]) == ContainerEdits(mounts=(Mount("/a", "/a", ()),))
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(spec()))
    better = edits(tmp_path, GPUS[0])
    assert better is not None
    assert [mount.container_path for mount in better.mounts] == ["/usr/lib64/libcuda.so.570.1"]


def test_a_spec_is_read_again_when_it_changes_and_forgotten_when_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    specs = ToolkitSpecs([tmp_path], Path("/nowhere"))
    specs.read()
    assert (specs.edits(GPUS), specs.used) == (None, ())
    path.write_text(yaml.safe_dump(spec()))
    assert specs.edits(GPUS) is None, "it counts from the next read on"
    specs.read()
    assert specs.edits(GPUS) is not None
    assert specs.used == (path,)
    path.write_text(yaml.safe_dump(spec(containerEdits={})))
    specs.read()
    changed = specs.edits(GPUS)
    assert changed is not None
    assert changed.mounts == ()
    path.unlink()
    specs.read()
    assert specs.edits(GPUS) is None


def test_a_spec_of_which_some_files_are_gone_is_not_used_and_that_is_told_once(tmp_path: Path) -> None:
    cdi, host = tmp_path / "cdi", tmp_path / "host"
    mounts = [
        {"hostPath": path, "containerPath": path} for path in ("/usr/bin/nvidia-smi", "/usr/lib64/libcuda.so.1.2")
    ]
    for file in ("usr/bin/nvidia-smi", "usr/lib64/libcuda.so.1.2"):
        (host / file).parent.mkdir(parents=True)
        (host / file).touch()
    cdi.mkdir()
    (cdi / "nvidia.yaml").write_text(yaml.safe_dump(spec(containerEdits={"mounts": mounts})))
    specs = ToolkitSpecs([cdi], host)
    specs.read()
    assert specs.edits(GPUS) is not None
    (host / "usr/lib64/libcuda.so.1.2").unlink()
    with capture_logs() as told:
        assert specs.edits(GPUS) is None
        assert specs.edits(GPUS) is None
    assert [line["missing"] for line in told] == ["/usr/lib64/libcuda.so.1.2"]


def changed(**fields: Any) -> str:
    return yaml.safe_dump(spec(containerEdits=fields))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param("kind: [", "cannot be read as YAML", id="half a file"),
        pytest.param("kind: nvidia.com/gpu\ndevices: 7", "is not a CDI spec", id="another form"),
        pytest.param("a: &a [1]\nkind: nvidia.com/gpu\nb: *a", "aliases", id="aliases"),
        pytest.param("x" * (256 * 1024 + 1), "has more than 262144 bytes", id="too large"),
        pytest.param("[" * 1000, "levels deep", id="very deep"),
        pytest.param(b"\xff", "not UTF-8", id="no text"),
        pytest.param(changed(deviceNodes=[{"path": "/dev/nvidia0"}]), "nvidia0 to every container", id="a common card"),
        pytest.param(changed(deviceNodes=[{"path": "dev/a"}]), "is not a CDI spec", id="a relative path"),
        pytest.param(changed(env=["A"]), "is not a CDI spec", id="a variable without a value"),
        pytest.param(changed(hooks=[{"hookName": "x", "path": "/x"}]), "is not a CDI spec", id="an unknown stage"),
        pytest.param(
            changed(deviceNodes=[{"path": "/a", "permissions": "x"}]), "is not a CDI spec", id="unknown permissions"
        ),
    ],
)
def test_a_broken_spec_is_told_once_and_not_used(tmp_path: Path, content: str | bytes, reason: str) -> None:
    (tmp_path / "nvidia.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    specs = ToolkitSpecs([tmp_path])
    with capture_logs() as told:
        specs.read()
        specs.read()
    (line,) = told
    assert reason in line["why"]
    assert str(tmp_path / "nvidia.yaml") in line["why"]
    assert specs.edits(GPUS) is None


def test_what_is_not_a_spec_of_nvidias_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "aliquot.io-gpu_abc.json").write_text("{")
    (tmp_path / "nvidia.txt").write_text("{")
    (tmp_path / "nvidia-folder.yaml").mkdir()
    (tmp_path / "nvidia-gone.yaml").symlink_to("nowhere")
    (tmp_path / "nvidia-other.yaml").write_text("kind: nvidia.com/net")
    with capture_logs() as told:
        assert edits(tmp_path, GPUS[0]) is None
        assert edits(tmp_path / "gone", GPUS[0]) is None
    assert told == []


TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["nvidia.com/gpu", "/dev/nvidia0", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "devices", "name", "containerEdits", "deviceNodes", "path", "env", "hooks"])
            | st.text(),
            inner,
            max_size=4,
        )
    ),
)


@settings(deadline=None)
@given(
    st.binary(max_size=200) | TREE.map(lambda tree: json.dumps({"kind": "nvidia.com/gpu", "devices": tree}).encode())
)
def test_no_file_makes_the_agent_fail_or_gives_a_card_away(tmp_path_factory: Any, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("cdi")
    (folder / "nvidia.json").write_bytes(content)
    found = edits(folder, GPUS[0])
    assert found is None or "/dev/nvidia0" not in [node.path for node in found.device_nodes]

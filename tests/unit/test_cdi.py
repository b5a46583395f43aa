"""CDI specs: one name per Allocate, written whole, removed with its pod."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aliquot.agent import cdi
from aliquot.agent.cdi import Edits, Folder
from aliquot.errors import BadConfig, Refused

EDITS = Edits({"B": "2", "A": "1=1"}, (1,))


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    made = tmp_path / "dev"
    made.mkdir()
    for name in ("nvidia1", "nvidiactl", "nvidia-uvm"):
        (made / name).touch()
    return made


@pytest.fixture
def specs(tmp_path: Path, devices: Path) -> Folder:
    made = Folder(tmp_path / "cdi", devices)
    made.prepare()
    return made


@given(st.lists(st.text(), max_size=4))
def test_a_promise_is_never_made_twice_and_is_a_valid_cdi_name(ids: list[str]) -> None:
    first, second = cdi.promise(ids), cdi.promise(ids)
    assert first != second
    kind, _, name = first.partition("=")
    assert kind == "aliquot.io/gpu"
    assert name.replace("-", "").isalnum()
    assert name.isascii()
    assert len(name) < 64
    assert cdi.is_ours(first)


def test_a_spec_carries_the_card_the_control_nodes_and_the_environment(
    specs: Folder, tmp_path: Path, devices: Path
) -> None:
    assert specs.write("aliquot.io/gpu=abc", "uid-1", EDITS) is True
    (path,) = (tmp_path / "cdi").iterdir()
    assert path.name == "aliquot.io-gpu_abc.json"
    assert msgspec.json.decode(path.read_bytes()) == {
        "cdiVersion": "0.6.0",
        "kind": "aliquot.io/gpu",
        "annotations": {"aliquot.io/pod-uid": "uid-1"},
        "devices": [
            {
                "name": "abc",
                "containerEdits": {
                    "env": ["A=1=1", "B=2"],
                    "deviceNodes": [
                        {"path": f"/dev/{name}", "hostPath": f"{devices}/{name}"}
                        for name in ("nvidia1", "nvidiactl", "nvidia-uvm")
                    ],
                },
            }
        ],
    }


def test_a_spec_that_stands_there_already_is_not_touched(specs: Folder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", "uid-1", EDITS)
    (path,) = (tmp_path / "cdi").iterdir()
    before = path.stat().st_ino
    assert specs.write("aliquot.io/gpu=abc", "uid-1", EDITS) is False
    assert path.stat().st_ino == before


def test_a_spec_with_other_content_is_replaced_as_a_whole(specs: Folder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", "uid-1", EDITS)
    (path,) = (tmp_path / "cdi").iterdir()
    before = path.stat().st_ino
    assert specs.write("aliquot.io/gpu=abc", "uid-1", Edits({}, (1,))) is True
    assert path.stat().st_ino != before
    assert [left.name for left in (tmp_path / "cdi").iterdir()] == [path.name]


def test_a_missing_device_node_writes_nothing(specs: Folder, tmp_path: Path, devices: Path) -> None:
    with pytest.raises(Refused, match=f"{devices}/nvidia7 is missing"):
        specs.write("aliquot.io/gpu=abc", "uid-1", Edits({}, (1, 7)))
    assert list((tmp_path / "cdi").iterdir()) == []


def test_a_folder_that_is_gone_is_a_refusal_with_its_name(tmp_path: Path, devices: Path) -> None:
    with pytest.raises(Refused, match="cannot be written: No such file or directory"):
        Folder(tmp_path / "gone", devices).write("aliquot.io/gpu=abc", "uid-1", EDITS)


def test_what_a_killed_agent_left_half_written_is_removed_at_the_start(specs: Folder, tmp_path: Path) -> None:
    (tmp_path / "cdi" / ".aliquot-abc").write_text("{")
    specs.prepare()
    assert list((tmp_path / "cdi").iterdir()) == []


def test_the_specs_of_pods_that_are_gone_are_removed_and_others_files_are_left(specs: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    for name, uid in (("a", "uid-1"), ("b", "uid-1"), ("c", "uid-2")):
        specs.write(f"aliquot.io/gpu={name}", uid, EDITS)
    (folder / "nvidia.yaml").touch()
    (folder / "nvidia.json").touch()
    assert specs.remove_all_but({"uid-2"}) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["aliquot.io-gpu_c.json", "nvidia.json", "nvidia.yaml"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"annotations":7}', b'{"annotations":{"aliquot.io/pod-uid":"\xff"}}'],
    ids=["nothing", "half", "a list", "no owner", "another form", "no UTF-8"],
)
def test_a_file_of_ours_whose_owner_cannot_be_told_is_removed(specs: Folder, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cdi" / "aliquot.io-gpu_broken.json").write_bytes(content)
    assert specs.remove_all_but({"uid-1"}) == 1
    assert list((tmp_path / "cdi").iterdir()) == []


def test_what_cannot_be_read_stays_is_told_and_keeps_nothing_else_from_being_removed(
    specs: Folder, tmp_path: Path
) -> None:
    odd = tmp_path / "cdi" / "aliquot.io-gpu_odd.json"
    odd.mkdir()
    for name in ("a", "z"):
        specs.write(f"aliquot.io/gpu={name}", "uid-1", EDITS)
    with capture_logs() as told:
        assert specs.remove_all_but(set()) == 2
    assert list((tmp_path / "cdi").iterdir()) == [odd]
    assert [(line["event"], line["path"]) for line in told] == [("cannot tidy up a CDI spec", str(odd))]


@pytest.mark.parametrize("place", ["file", "file/deeper"], ids=["a file in its place", "a file above it"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=f"the CDI folder {tmp_path / place} cannot be used: "):
        Folder(tmp_path / place).prepare()

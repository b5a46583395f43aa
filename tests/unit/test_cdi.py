"""CDI specs: one name per Allocate, written whole, read back with what their pod has got."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aliquot.agent import cdi, handover_record
from aliquot.agent.cdi import CdiSpec, SpecFolder
from aliquot.agent.devices import ContainerEdits, DeviceNode, Hook, Mount
from aliquot.agent.handover_record import HandOverRecord
from aliquot.dialects import Holding
from aliquot.errors import BadConfig, Refused
from aliquot.model import Placement, Slice
from tests.factories import charge_of, make_cards, make_placement

EDITS = ContainerEdits({"B": "2", "A": "1=1"}, (DeviceNode("/dev/card1", "/rig/dev/card1"),))
CARDS = make_cards()


def owner(uid: str = "uid-1", card: int = 1, mib: int = 3072) -> HandOverRecord:
    """A pod that has got a part of a card."""
    placement = make_placement(CARDS, card, main=mib)
    return HandOverRecord(uid, f"default/{uid}", Holding(placement, charge_of(placement)))


OWNER = owner()
RECORD = (
    '{"v":1,"uid":"uid-1","pod":"default/uid-1","node":"n1","dialect":"gpushare",'
    '"containers":{"main":[{"uuid":"GPU-n1-1","mib":3072}]},"charges":[{"uuid":"GPU-n1-1","mib":3072,"shares":1}]}'
)


@pytest.fixture
def specs(tmp_path: Path) -> SpecFolder:
    made = SpecFolder(tmp_path / "cdi")
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


def test_a_spec_carries_the_device_nodes_and_the_environment(specs: SpecFolder, tmp_path: Path) -> None:
    assert specs.write("aliquot.io/gpu=abc", OWNER, EDITS) is True
    (path,) = (tmp_path / "cdi").iterdir()
    assert path.name == "aliquot.io-gpu_abc.json"
    assert msgspec.json.decode(path.read_bytes()) == {
        "cdiVersion": "0.6.0",
        "kind": "aliquot.io/gpu",
        "annotations": {"aliquot.io/pod-uid": "uid-1", "aliquot.io/handed-over": RECORD},
        "devices": [
            {
                "name": "abc",
                "containerEdits": {
                    "env": ["A=1=1", "B=2"],
                    "deviceNodes": [{"path": "/dev/card1", "hostPath": "/rig/dev/card1"}],
                },
            }
        ],
    }


def test_a_spec_carries_mounts_hooks_and_every_given_field_of_a_device_node(specs: SpecFolder, tmp_path: Path) -> None:
    edits = ContainerEdits(
        device_nodes=(DeviceNode("/dev/a", "/host/a", "c", 195, 0, 0o666, "rw", 0, 44),),
        mounts=(Mount("/usr/lib64/libcuda.so.1", "/driver/libcuda.so.1"), Mount("/b", "/a", (), "tmpfs")),
        hooks=(
            Hook("createContainer", "/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "update-ldcache"), ("A=1",), 5),
            Hook("poststop", "/bin/true"),
        ),
    )
    specs.write("aliquot.io/gpu=abc", OWNER, edits)
    (path,) = (tmp_path / "cdi").iterdir()
    written = msgspec.json.decode(path.read_bytes())
    assert written["cdiVersion"] == "0.6.0"
    assert written["devices"][0]["containerEdits"] == {
        "env": [],
        "deviceNodes": [
            {"path": "/dev/a", "hostPath": "/host/a", "type": "c", "major": 195, "minor": 0, "fileMode": 438}
            | {"permissions": "rw", "uid": 0, "gid": 44}
        ],
        "mounts": [
            {
                "hostPath": "/driver/libcuda.so.1",
                "containerPath": "/usr/lib64/libcuda.so.1",
                "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            },
            {"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"},
        ],
        "hooks": [
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "update-ldcache"],
                "env": ["A=1"],
                "timeout": 5,
            },
            {"hookName": "poststop", "path": "/bin/true"},
        ],
    }


def test_a_spec_has_the_lowest_version_that_has_its_fields(specs: SpecFolder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", OWNER, replace(EDITS, groups=(44,)))
    (path,) = (tmp_path / "cdi").iterdir()
    written = msgspec.json.decode(path.read_bytes())
    assert written["cdiVersion"] == "0.7.0"
    assert written["devices"][0]["containerEdits"]["additionalGids"] == [44]


def test_edits_together_have_everything_once_and_the_first_wins() -> None:
    first = ContainerEdits({"A": "1"}, (DeviceNode("/dev/a", "/1"),), (Mount("/m", "/1"),), (Hook("x", "/h"),), (1,))
    second = ContainerEdits(
        {"A": "2", "B": "2"},
        (DeviceNode("/dev/a", "/2"), DeviceNode("/dev/b", "/2")),
        (Mount("/m", "/2"), Mount("/n", "/2")),
        (Hook("x", "/h"), Hook("x", "/i")),
        (1, 2),
    )
    assert first + second == ContainerEdits(
        {"A": "1", "B": "2"},
        (DeviceNode("/dev/a", "/1"), DeviceNode("/dev/b", "/2")),
        (Mount("/m", "/1"), Mount("/n", "/2")),
        (Hook("x", "/h"), Hook("x", "/i")),
        (1, 2),
    )


def test_a_spec_that_stands_there_already_is_not_touched(specs: SpecFolder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", OWNER, EDITS)
    (path,) = (tmp_path / "cdi").iterdir()
    before = path.stat().st_ino
    assert specs.write("aliquot.io/gpu=abc", OWNER, EDITS) is False
    assert path.stat().st_ino == before


def test_a_spec_with_other_content_is_replaced_as_a_whole(specs: SpecFolder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", OWNER, EDITS)
    (path,) = (tmp_path / "cdi").iterdir()
    before = path.stat().st_ino
    assert specs.write("aliquot.io/gpu=abc", OWNER, replace(EDITS, environment={})) is True
    assert path.stat().st_ino != before
    assert [left.name for left in (tmp_path / "cdi").iterdir()] == [path.name]


def test_a_folder_that_is_gone_is_a_refusal_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be written: No such file or directory"):
        SpecFolder(tmp_path / "gone").write("aliquot.io/gpu=abc", OWNER, EDITS)


def test_what_a_killed_agent_left_half_written_is_removed_at_the_start(specs: SpecFolder, tmp_path: Path) -> None:
    (tmp_path / "cdi" / ".aliquot-abc").write_text("{")
    specs.prepare()
    assert list((tmp_path / "cdi").iterdir()) == []


def test_what_was_handed_over_is_read_back_and_others_files_are_left_alone(specs: SpecFolder, tmp_path: Path) -> None:
    specs.write("aliquot.io/gpu=abc", OWNER, EDITS)
    (tmp_path / "cdi" / "nvidia.yaml").touch()
    (tmp_path / "cdi" / "nvidia.json").touch()
    (read,) = specs.read()
    assert (read.promised, read.pod_uid, read.trouble) == ("aliquot.io/gpu=abc", "uid-1", "")
    assert read.environment == EDITS.environment
    assert read.record is not None
    assert read.record.on(CARDS) == OWNER


@given(
    st.integers(0, 1),
    st.dictionaries(st.text(min_size=1), st.tuples(st.integers(0, 100), st.integers(0, 2**24), st.integers(0, 9))),
    st.text(),
)
def test_any_part_is_read_back_as_it_was_written(card: int, parts: dict[str, tuple[int, int, int]], pod: str) -> None:
    gpu = CARDS.by_index[card]
    slices = {name: (Slice(gpu.uuid, gpu.index, gpu.minor, *part),) for name, part in parts.items()}
    placement = Placement("n1", "gpushare", slices)
    written = HandOverRecord("uid-1", pod, Holding(placement, charge_of(placement)))
    assert handover_record.read(handover_record.write(written)).on(CARDS) == written


def test_a_card_has_the_numbers_of_now() -> None:
    first, second = CARDS.gpus
    swapped = replace(CARDS, gpus=(replace(second, index=0, minor=9), replace(first, index=1, minor=8)))
    (part,) = OWNER.on(swapped).holding.placement.slices()
    assert (part.uuid, part.index, part.minor) == ("GPU-n1-1", 0, 9)


def test_a_spec_from_before_has_an_owner_and_variables(specs: SpecFolder, tmp_path: Path) -> None:
    old = {
        "annotations": {"aliquot.io/pod-uid": "uid-1"},
        "devices": [{"name": "abc", "containerEdits": {"env": ["A=1=1", "B"], "deviceNodes": []}}],
    }
    path = tmp_path / "cdi" / "aliquot.io-gpu_abc.json"
    path.write_bytes(msgspec.json.encode(old))
    assert specs.read() == [CdiSpec(path, "uid-1", None, {"A": "1=1", "B": ""})]


BROKEN = [
    pytest.param(b"", "truncated", id="nothing"),
    pytest.param(b"{", "truncated", id="half"),
    pytest.param(b"[]", "Expected `object`", id="a list"),
    pytest.param(b"{}", "does not name its pod", id="no owner"),
    pytest.param(b'{"annotations":7}', "Expected `object`", id="another form"),
    pytest.param(b'{"annotations":{"aliquot.io/pod-uid":"\xff"}}', "codec can't decode", id="no UTF-8"),
    pytest.param(b"[" * 10000, "", id="very deep"),
    *(
        pytest.param(
            msgspec.json.encode({"annotations": {"aliquot.io/pod-uid": uid, "aliquot.io/handed-over": record}}),
            text,
            id=name,
        )
        for name, uid, record, text in (
            ("no record", "uid-1", "x", "the hand-over record cannot be read"),
            ("a later version", "uid-1", RECORD.replace('"v":1', '"v":2'), "has version 2"),
            ("a part that gives room", "uid-1", RECORD.replace("3072", "-1"), "Expected `int` >= 0"),
            ("another owner", "uid-2", RECORD, "does not name its pod"),
        )
    ),
]


@pytest.mark.parametrize(("content", "why"), BROKEN)
def test_a_spec_that_cannot_be_read_says_why_and_keeps_no_other_from_being_read(
    specs: SpecFolder, tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "cdi" / "aliquot.io-gpu_broken.json"
    path.write_bytes(content)
    specs.write("aliquot.io/gpu=whole", OWNER, EDITS)
    broken, whole = specs.read()
    assert (broken.path, broken.pod_uid, broken.record, whole.trouble) == (path, "", None, "")
    assert broken.trouble
    assert why in broken.trouble


@pytest.mark.parametrize("kind", ["pipe", "link to endless bytes", "huge"])
def test_what_cannot_be_a_spec_of_ours_is_not_read(specs: SpecFolder, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "cdi" / "aliquot.io-gpu_odd.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        path.write_bytes(b" " * 5 * 2**20 + b"{}")
    else:
        path.symlink_to("/dev/zero")
    (odd,) = specs.read()
    assert "is no CDI spec of ours" in odd.trouble
    with pytest.raises(Refused, match=r"aliquot.io-gpu_odd.json cannot be written: it is no CDI spec of ours"):
        specs.write("aliquot.io/gpu=odd", OWNER, EDITS)


@pytest.mark.parametrize("name", ["../outside", "a/b", "", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(specs: SpecFolder, tmp_path: Path, name: str) -> None:
    (tmp_path / "cdi" / "aliquot.io-gpu_..").mkdir()
    with pytest.raises(Refused, match="is no CDI name that this agent gives"):
        specs.write(f"aliquot.io/gpu={name}", OWNER, EDITS)


def test_what_cannot_be_removed_stays_and_is_told(specs: SpecFolder, tmp_path: Path) -> None:
    odd = tmp_path / "cdi" / "aliquot.io-gpu_odd.json"
    odd.mkdir()
    specs.write("aliquot.io/gpu=a", OWNER, EDITS)
    with capture_logs() as told:
        for spec in specs.read():
            specs.remove(spec)
    assert list((tmp_path / "cdi").iterdir()) == [odd]
    assert [(line["event"], line["path"]) for line in told] == [("cannot remove a CDI spec", str(odd))]


@pytest.mark.parametrize("place", ["file", "file/deeper"], ids=["a file in its place", "a file above it"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=f"the CDI folder {tmp_path / place} cannot be used: "):
        SpecFolder(tmp_path / place).prepare()

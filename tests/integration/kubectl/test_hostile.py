"""Dumps, messages and events in which somebody has written what is to do harm."""

import io
import tarfile
from pathlib import Path

import pytest

from aliquot.reports.objects import ClusterObjects
from tests.factories import make_cards, make_node, make_pod
from tests.integration.kubectl.command import archived, gpu

EVIL = "a\x1b]0;title\x07\x1b[2Jb\x9b2Kc\x7f\r\u202ed"
SHOWN = "a?]0;title??[2Jb?2Kc???d"


@pytest.fixture
def dump(tmp_path: Path) -> str:
    condition = {"type": "PodScheduled", "status": "False", "message": EVIL}
    pod = make_pod("p", 99, status={"phase": "Pending", "conditions": [condition]})
    return archived(ClusterObjects(0.0, [make_node("n1", make_cards())], [pod]), tmp_path)


@pytest.mark.parametrize("command", [("queue", "-o", "wide"), ("explain", "p")])
@pytest.mark.parametrize("color", ["never", "always"])
def test_no_message_commands_the_terminal(dump: str, command: tuple[str, ...], color: str) -> None:
    out = gpu(*command, "--from", dump, "--color", color).out
    assert SHOWN in out


def test_our_own_colours_are_shown(dump: str) -> None:
    assert "\x1b[32m" in gpu("nodes", "--from", dump, "--color", "always").out


def test_no_error_commands_the_terminal(dump: str) -> None:
    assert SHOWN in gpu("explain", EVIL, "--from", dump).err


@pytest.mark.parametrize("command", ["json", "yaml"])
def test_json_and_yaml_escape_what_they_carry(dump: str, command: str) -> None:
    out = gpu("queue", "--from", dump, "-o", command).out
    assert ("title" in out, "\x1b" in out) == (True, False)


@pytest.mark.parametrize(
    "content", [pytest.param(b'{"at": 1, "namespace": "\xa1"}', id="no UTF-8"), pytest.param(b"[" * 9999, id="deep")]
)
def test_a_dump_that_is_none_is_an_error_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dump.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("objects.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))

    ended = gpu("nodes", "--from", str(path))

    assert ended.code == 1
    assert "cannot be read as an archive of `kubectl gpu dump`" in ended.err

"""Debian's packages come from where the machine's own apt gets them."""

from pathlib import Path

import pytest

from image.errors import ImageError
from image.sources import Sources, configured

ONE_LINE = """\
# deb http://old.example/debian trixie main
deb [signed-by=/k.gpg] http://near.example/debian/ trixie main
deb http://safe.example/debian-security trixie-security main
"""
DEB822 = """\
Types: deb
URIs: https://near.example/debian
Suites: trixie trixie-updates
"""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        pytest.param(
            "sources.list",
            ONE_LINE,
            Sources("http://near.example/debian", "http://safe.example/debian-security"),
            id="a line each",
        ),
        pytest.param(
            "sources.list.d/debian.sources",
            DEB822,
            Sources("https://near.example/debian", "https://near.example/debian-security"),
            id="paragraphs, and no word on security",
        ),
    ],
)
def test_the_machines_own_sources_are_used(tmp_path: Path, name: str, text: str, found: Sources) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)
    assert configured(tmp_path) == found


def test_a_machine_without_debian_is_told_what_to_say(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://archive.example/ubuntu noble main\n")
    with pytest.raises(ImageError, match="--mirror"):
        configured(tmp_path)

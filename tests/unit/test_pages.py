"""The guides for those who come from another system: all in one order, and all found."""

from pathlib import Path

import pytest

from tests.pages import COMING_FROM, Step, coming_from, sections, steps

PAGES = coming_from()
SECTIONS = [
    "What changes, what stays",
    "Look first",
    "Only the image changed",
    "Change over",
    "Half way",
    "Rights",
    "What is better",
    "What is not there",
    "Go back",
]


def test_there_is_a_page_for_every_system() -> None:
    assert [page.stem for page in PAGES] == [
        "elastic-gpu",
        "gpu-admission",
        "gpushare",
        "hami",
        "keti",
        "nvidia-gpu-scheduler",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_the_same_sections(page: Path) -> None:
    assert sections(page) == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_begins_in_observe_mode_and_is_listed(page: Path) -> None:
    assert "--mode observe" in next(steps(page)).commands
    assert f"({page.name})" in (COMING_FROM / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_hides_in_another_kind_of_fence(page: Path) -> None:
    """Those in text are not run by make e2e: only the agent's, which needs a GPU node."""
    text = page.read_text()
    unrun = [block.split("```")[0] for block in text.split("```text\n")[1:]]
    assert all(block.startswith("aliquot agent ") for block in unrun)
    assert "```bash" not in text
    assert "```console" not in text


@pytest.mark.parametrize(
    ("shown", "printed", "explained"),
    [
        pytest.param("", "anything", True, id="nothing shown"),
        pytest.param("yes\n", "yes\n", True, id="the same"),
        pytest.param("yes\n", "no\n", False, id="another"),
        pytest.param("a ... d\n", "a b c d", True, id="dots within a line"),
        pytest.param("...\nlast\n", "first\nsecond\nlast\n", True, id="dots for lines"),
        pytest.param("first\n...", "first\n", False, id="dots after a line want another"),
        pytest.param("a.c", "abc", False, id="a dot is a dot"),
    ],
)
def test_what_a_page_shows_is_compared_with_what_is_printed(shown: str, printed: str, explained: bool) -> None:
    assert Step(1, "command", shown).explains(printed) is explained


def test_only_the_fence_right_after_the_commands_is_their_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\none\n```\n\n```\n1\n```\n\n```sh\ntwo\n```\n\nText.\n\n```\nnot 2\n```\n")
    assert list(steps(page)) == [Step(1, "one\n", "1\n"), Step(9, "two\n")]

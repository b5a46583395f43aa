"""What the documents promise is there."""

import re
from pathlib import Path

import pytest
import yaml

from aliquot.dialects import Dialect, standard_dialects
from aliquot.dialects.table import OURS

OUR_DIALECTS = [standard_dialects()[kind.name] for kind in OURS]
ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    named = set(re.findall(r"`make ([a-z0-9]+)", document.read_text()))
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_who_is_shown_our_command_is_told_where_it_is(document: Path) -> None:
    text = document.read_text()
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines() if re.match(r"(\$ )?aliquot \w", line)]
    assert not shown or document.name == "design.md" or ".venv/bin/aliquot" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(document: Path) -> None:
    assert re.findall(r"^[A-Z]{4,}$|\bTODO\b|\bTBD\b", document.read_text(), re.MULTILINE) == []


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_has_its_sample_as_an_example(dialect: Dialect) -> None:
    example = ROOT / "examples" / f"{dialect.name}.yaml"
    assert yaml.safe_load(example.read_text()) == dialect.sample_workload()


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_s_page_begins_with_its_example(dialect: Dialect) -> None:
    example = (ROOT / "examples" / f"{dialect.name}.yaml").read_text()
    assert example in (ROOT / "docs" / "dialects" / f"{dialect.name}.md").read_text()


def test_the_users_guide_shows_the_example_as_it_is() -> None:
    assert (ROOT / "examples" / "gpushare.yaml").read_text() in (ROOT / "docs" / "use.md").read_text()

"""Selectors: commas count outside brackets, and nobody makes the server compare for ever."""

import time

import pytest

from aliquot.apiserver.selectors import parse_fields, parse_labels
from aliquot.apiserver.statuses import BadRequest
from aliquot.model.bounds import LARGEST_HEAD, MAX_SELECTOR_TERMS

OBJECT = {"metadata": {"name": "p", "labels": {"team": "a", "tier": "web"}}}


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("team in (a,b),tier=web", True),
        ("team in (a,b),tier notin (web,db)", False),
        ("tier=web, team in ( b , a )", True),
        ("team in (b,c),tier", False),
        ("team,!app", True),
    ],
)
def test_commas_outside_brackets_separate_requirements(text: str, is_selected: bool) -> None:
    assert parse_labels(text)(OBJECT) is is_selected


@pytest.mark.parametrize("text", [",", "team=a,", "team in (a,b", "team in a,b)", "(", ")"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_labels(text)


def test_there_are_only_so_many_requirements() -> None:
    most = [f"!a{number}" for number in range(MAX_SELECTOR_TERMS)]
    assert parse_labels(",".join(most))(OBJECT)
    with pytest.raises(BadRequest, match="more than 64"):
        parse_labels(",".join([*most, "!b"]))
    with pytest.raises(BadRequest, match="more than 64"):
        parse_fields(",".join(["metadata.name=p"] * (MAX_SELECTOR_TERMS + 1)), ())


@pytest.mark.parametrize("text", [",", "a in (b,", "(", "a ", "a,(", "a in (b),"])
def test_the_longest_selector_is_read_in_no_time(text: str) -> None:
    """It took 24 s to see that 64 KiB of commas are no selector."""
    began = time.process_time()
    with pytest.raises(BadRequest):
        parse_labels(text * (LARGEST_HEAD // len(text)))
    assert time.process_time() - began < 1.0

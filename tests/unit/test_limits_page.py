"""docs/limits.md: every bound there is one of the code's, and no bound of the code is left out."""

import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from aliquot.cli.listening import limits
from aliquot.config import SETTINGS, Configuration
from aliquot.doors.limits import USUAL
from aliquot.model import bounds

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
UNITS = {"": 1, "s": 1, "KiB": bounds.KIB, "MiB": bounds.MIB}


class Row(NamedTuple):
    bound: str
    declared: str


def rows() -> list[Row]:
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    found = [Row(bound.strip(), declared.strip(" `")) for what, bound, _, declared in lines if what.strip() != "what"]
    return [row for row in found if row.declared]


def stated(row: Row) -> float:
    match = re.fullmatch(r"([\d.]+) ?(\w*)", row.bound)
    assert match is not None, row
    return float(match[1]) * UNITS[match[2]]


def declared(row: Row) -> float:
    if row.declared in SETTINGS:
        return float(SETTINGS[row.declared].default * (bounds.MIB if row.declared.endswith("Mb") else 1))
    module, _, name = row.declared.rpartition(".")
    return float(getattr(import_module(f"aliquot.{module}"), name))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.declared)
def test_a_bound_is_what_the_code_says(row: Row) -> None:
    assert stated(row) == declared(row)


def test_every_bound_of_the_code_is_on_the_page() -> None:
    fixed = {f"model.bounds.{name}" for name in vars(bounds) if name.isupper()} - {
        "model.bounds.KIB",
        "model.bounds.MIB",
    }
    keys = {path for path in SETTINGS if path.startswith("listen.limits.")}
    assert {row.declared for row in rows()} >= fixed | keys


def test_a_port_has_the_same_limits_whoever_makes_it() -> None:
    assert limits(Configuration()) == USUAL

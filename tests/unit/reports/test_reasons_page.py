"""docs/explain.md names every reason that a pod may get, and no other."""

import re
from pathlib import Path

from aliquot.reports.causes import Cause

PAGE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()


def test_the_page_has_every_reason() -> None:
    section = PAGE.partition("## On the pod itself")[2].partition("\n## ")[0]
    named = [line.split("|")[1] for line in section.splitlines() if re.match(r"\| `[A-Z]", line)]

    assert sorted(re.findall(r"`(\w+)`", " ".join(named))) == sorted(cause.value for cause in Cause)

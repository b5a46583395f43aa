"""The page about policies knows all of them, and no other."""

import re
from pathlib import Path

from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES

PAGE = (Path(__file__).parents[4] / "docs" / "policies.md").read_text()


def test_every_policy_is_on_the_page() -> None:
    described = "".join(re.findall(r"^\* .*$", PAGE, re.MULTILINE))
    named = set(re.findall(r"`([a-z0-9.-]+)`", described))
    assert {*GPU_POLICIES, *NODE_POLICIES} <= named


def test_what_the_page_advises_can_be_chosen() -> None:
    rows = re.findall(r"^\| .* \| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) > 3
    for nodes, cards in rows:
        assert set(nodes.split(",")) <= set(NODE_POLICIES)
        assert set(cards.split(",")) <= set(GPU_POLICIES)

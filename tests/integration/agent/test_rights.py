"""What an account lacks that the agent runs under, such as that of an original's manifest."""

from typing import Any

import pytest

from aliquot.agent.rights import say_what_is_missing
from aliquot.kube import Access, Client
from tests.fakes import ScriptedApi
from tests.fakes.api import Embedded

READ = ["get", "list", "watch"]
GPUSHARE_S_RIGHTS = [
    {"apiGroups": [""], "resources": [resource], "verbs": verbs}
    for resource, verbs in {
        "nodes": READ,
        "events": ["create", "patch"],
        "pods": ["update", "patch", *READ],
        "nodes/status": ["patch", "update"],
    }.items()
]


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        pytest.param(
            GPUSHARE_S_RIGHTS,
            {"may not patch leases in namespace aliquot-nodes: the server cannot notice when this agent stops"},
            id="gpushare's own",
        ),
        pytest.param(
            GPUSHARE_S_RIGHTS[:2],
            {
                "may not list pods: the agent sees no pod and hands over no card",
                "may not patch pods: the agent cannot mark pods and hands over no card",
                "may not patch nodes/status: the Node has no conditions that tell of broken or unguarded cards",
                "may not patch nodes: the server does not see the cards of this node",
                "may not patch leases in namespace aliquot-nodes: the server cannot notice when this agent stops",
            },
            id="too few",
        ),
    ],
)
async def test_missing_rights_are_told_once_with_the_rules_to_add(
    scripted: ScriptedApi, rights: list[Any], missing: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(scripted.behind, Embedded)
    scripted.behind.cluster.users.add("gpushare", token="secret", rules=rights)
    async with Client(Access(scripted.url, token="secret")) as client:
        await say_what_is_missing(client)
    told = [line for line in capfd.readouterr().out.splitlines() if "this account lacks a right" in line]
    assert len(told) == len(missing)
    assert {text for text in missing if any(text in line for line in told)} == missing
    assert all("rule='- {apiGroups: [" in line for line in told)


async def test_an_api_server_that_is_away_is_no_missing_right(capfd: pytest.CaptureFixture[str]) -> None:
    async with Client(Access("http://127.0.0.1:1")) as client:
        await say_what_is_missing(client)
    assert "cannot find out which rights this account has" in capfd.readouterr().out

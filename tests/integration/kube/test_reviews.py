"""Questions about rights and tokens."""

from typing import Any

import pytest

from aliquot.kube import Client, KubeError
from aliquot.kube.reviews import Action, User, may, may_we, whose
from tests.fakes import ScriptedApi, answer, body

BIND = Action("create", "pods", subresource="binding", namespace="default")
ALICE = User("alice", "7", ["people"])
ADMINISTRATOR = User("alice", "7", ["system:masters"])


async def test_our_own_rights_are_asked_in_rbac_s_words(scripted: ScriptedApi, client: Client) -> None:
    assert (await may_we(client, BIND)).allowed
    asked = {"verb": "create", "resource": "pods", "subresource": "binding", "namespace": "default"}
    assert scripted.seen[0].body["spec"] == {"resourceAttributes": asked}
    scripted.script("POST", "selfsubjectaccessreviews", body(b'{"status":{"allowed":false,"reason":"no rule"}}', 201))
    verdict = await may_we(client, BIND)
    assert (verdict.allowed, verdict.reason) == (False, "no rule")


async def test_the_rights_of_others_are_asked_with_their_groups(scripted: ScriptedApi, client: Client) -> None:
    assert (await may(client, ADMINISTRATOR, Action("get", path="/metrics"))).allowed
    assert scripted.seen[0].body["spec"] == {
        "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        "user": "alice",
        "uid": "7",
        "groups": ["system:masters"],
    }
    assert not (await may(client, ALICE, BIND)).allowed


async def test_an_answer_without_a_verdict_is_a_no(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("POST", "subjectaccessreviews", body(b"{}", 201))
    assert not (await may(client, ALICE, BIND)).allowed


KNOWN = b'{"status":{"authenticated":true,"user":{"username":"alice","uid":"7","groups":["people"]}%b}}'
TOKENS: list[Any] = [
    pytest.param(KNOWN % b"", (), ALICE, id="known"),
    pytest.param(KNOWN % b',"audiences":["aliquot"]', ("aliquot",), ALICE, id="meant for us"),
    pytest.param(KNOWN % b',"audiences":["other"]', ("aliquot",), None, id="meant for others"),
    pytest.param(KNOWN % b"", ("aliquot",), None, id="nobody looked for whom it is meant"),
    pytest.param(b'{"status":{"error":"expired"}}', (), None, id="unknown"),
]


@pytest.mark.parametrize(("answered", "audiences", "user"), TOKENS)
async def test_a_token_is_somebody_s_or_nobody_s(
    scripted: ScriptedApi, client: Client, answered: bytes, audiences: tuple[str, ...], user: User | None
) -> None:
    scripted.script("POST", "/authentication.k8s.io/v1/tokenreviews", body(answered, 201))
    assert await whose(client, "secret", audiences) == user
    assert scripted.seen[0].body["spec"] == {"token": "secret"} | ({"audiences": ["aliquot"]} if audiences else {})


async def test_a_token_that_nobody_made_is_nobody_s(client: Client) -> None:
    assert await whose(client, "secret") is None


async def test_a_question_that_is_not_answered_is_no_verdict(scripted: ScriptedApi, client: Client) -> None:
    scripted.script("POST", "reviews", answer(403, message="you may not ask"))
    with pytest.raises(KubeError, match="you may not ask"):
        await may_we(client, BIND)

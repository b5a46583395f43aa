"""Which node a token of a service account is bound to."""

import base64
import json
from typing import Any

import pytest

from aliquot.kube.token_claims import node_of


def token(claims: Any) -> str:
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return f"e30.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.c2ln"


OF_POD = {"kubernetes.io": {"namespace": "a", "pod": {"name": "p", "uid": "1"}, "node": {"name": "gpu-1", "uid": "2"}}}


@pytest.mark.parametrize(
    ("text", "node"),
    [
        pytest.param(token(OF_POD), "gpu-1", id="of a pod on a node"),
        pytest.param(token({"kubernetes.io": {"pod": {"name": "p"}}}), "", id="of a pod, from an older API server"),
        pytest.param(token({"kubernetes.io": {}}), "", id="of an account alone"),
        pytest.param(token({"iss": "somebody"}), None, id="of another issuer"),
        pytest.param(token(b"\xff"), None, id="not JSON"),
        pytest.param("a.%%%.c", None, id="not base64"),
        pytest.param("secret", None, id="not a JWT"),
        pytest.param("", None, id="none"),
    ],
)
def test_the_node_of_a_token(text: str, node: str | None) -> None:
    assert node_of(text) == node

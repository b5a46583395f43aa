"""Paths of objects at the API server."""

import pytest

from aliquot.kube import NODES, PODS, NotSent


def test_a_path_has_the_pieces_that_are_given() -> None:
    assert PODS.path("default", "p", "binding") == "api/v1/namespaces/default/pods/p/binding"
    assert PODS.path("default") == "api/v1/namespaces/default/pods"
    assert NODES.path(name="n1") == "api/v1/nodes/n1"


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "../nodes/n1", "a?watch=true", "a#b", "a%2fb", "a b", "a\n", "ä", "a" * 300]
)
def test_what_would_lead_to_another_object_is_not_sent(name: str) -> None:
    for given in ({"name": name}, {"namespace": name, "name": "p"}):
        with pytest.raises(NotSent, match="is not a valid name of a Kubernetes object"):
            PODS.path(**given)

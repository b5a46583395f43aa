"""Who holds the ids of a PreStart call: kubelet's two records must agree."""

from typing import Any

import pytest

from aliquot.agent.checkpoint import Grant
from aliquot.agent.kubelet_records import PodGrants, agree
from aliquot.agent.podresources import HeldIds
from aliquot.errors import Refused


def grant(*ids: str, pod: str = "uid-1", container: str = "main") -> Grant:
    return Grant(pod, container, "r", frozenset(ids), (f"aliquot.io/gpu={container}",))


def holding(*ids: str, pod: str = "default/p", container: str = "main") -> HeldIds:
    return HeldIds(pod, container, frozenset(ids))


AGREED: list[Any] = [
    pytest.param("ab", [grant("a", "b")], [holding("a", "b")], "default/p", id="both name the same container"),
    pytest.param("ab", [grant("a", "b", container="init")], [], None, id="a plain init container is in one only"),
    pytest.param(
        "ab",
        [grant("a", "b", container="init"), grant("a")],
        [holding("a")],
        "default/p",
        id="init and main share ids",
    ),
    pytest.param(
        "ab",
        [grant("a", "b", container="init"), grant("a", "b")],
        [holding("a", "b")],
        "default/p",
        id="init and main have the same ids",
    ),
]


@pytest.mark.parametrize(("ids", "granted", "held", "pod"), AGREED)
def test_one_pod_with_all_its_grants_is_found(
    ids: str, granted: list[Grant], held: list[HeldIds], pod: str | None
) -> None:
    assert agree(frozenset(ids), granted, held) == PodGrants("uid-1", pod, tuple(granted))


REFUSED: list[Any] = [
    pytest.param("a", [], [holding("a")], "lists no container with exactly these 1 device ids", id="no grant at all"),
    pytest.param("abc", [grant("a", "b")], [], "lists no container with exactly these 3 device ids", id="too many ids"),
    pytest.param("a", [grant("a", "b")], [], "lists no container with exactly these 1 device ids", id="too few ids"),
    pytest.param(
        "a",
        [grant("a"), grant("a", pod="uid-2")],
        [],
        "the same device ids for several pods: uid-1, uid-2",
        id="two pods in the checkpoint",
    ),
    pytest.param(
        "a",
        [grant("a")],
        [holding("a"), holding("a", pod="default/q")],
        "the same device ids for several pods: default/p, default/q, uid-1",
        id="two pods in PodResources",
    ),
    pytest.param(
        "a",
        [grant("a")],
        [holding("a", container="other")],
        "PodResources lists containers that kubelet's checkpoint does not: other",
        id="another container in PodResources",
    ),
]


@pytest.mark.parametrize(("ids", "granted", "held", "text"), REFUSED)
def test_anything_unclear_is_refused(ids: str, granted: list[Grant], held: list[HeldIds], text: str) -> None:
    with pytest.raises(Refused, match=text):
        agree(frozenset(ids), granted, held)

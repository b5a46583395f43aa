"""What somebody sees who may read little."""

from typing import Any

import msgspec
import pytest

from aliquot.errors import BadInput
from aliquot.model import Pod
from aliquot.model.admission import PLACEABLE
from aliquot.reports.explain import explain_report
from aliquot.reports.explained import Explained
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.view import view_of
from tests.factories import make_cards, make_node, make_pod

WRITTEN = {
    "type": PLACEABLE,
    "status": "False",
    "reason": "NoRoom",
    "message": "Not now: every card that suits the pod is too full",
}


def seen(*pods: Pod, **fields: Any) -> Explained:
    view = view_of(ClusterObjects(0.0, pods=list(pods), **fields))
    return explain_report(view, "default", "p", lambda _: True)


def pod(*conditions: dict[str, str]) -> Pod:
    return make_pod("p", 3, status={"phase": "Pending", "conditions": list(conditions)})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"namespace": "default", "nodes": [make_node("n1", make_cards())]}, id="pods of one namespace"),
        pytest.param({}, id="no nodes"),
    ],
)
def test_who_sees_a_part_reads_what_the_leader_wrote(fields: dict[str, Any]) -> None:
    told = seen(pod(WRITTEN), **fields)

    assert (told.cause, told.outlook, told.message) == ("NoRoom", "not_now", WRITTEN["message"])
    assert told.text().splitlines()[0] == f"default/p waits. {WRITTEN['message']}"
    assert "You may not read nodes and all pods" in told.notes[0]


def test_a_free_node_that_may_be_full_of_unseen_pods_is_not_promised() -> None:
    told = seen(pod(), namespace="default", nodes=[make_node("n1", make_cards())])

    assert (told.cause, told.changes) == ("Unknown", ())
    assert "has written nothing on the pod yet" in told.notes[0]


def test_who_sees_everything_gets_the_present_state_and_not_what_was_written() -> None:
    assert seen(pod(WRITTEN), nodes=[make_node("n1", make_cards())]).cause == "Fits"


def test_there_is_no_such_pod() -> None:
    with pytest.raises(BadInput, match="there is no pod p in namespace default"):
        seen(nodes=[make_node("n1", make_cards())])


def test_a_report_survives_json() -> None:
    told = seen(pod(WRITTEN))
    assert msgspec.json.decode(msgspec.json.encode(told), type=Explained) == told

"""Labels on the agent's Node: it adds what is missing, and leaves alone what others wrote."""

import msgspec
import pytest

from aliquot.agent import node_labels
from aliquot.model import Node
from aliquot.model.records import CARD_LABELS

WANTED = {"product": "T4", "count": "2"}
RECORD = '{"count":"2","product":"T4"}'


def node(labels: dict[str, str], record: str | None = None) -> Node:
    annotations = {} if record is None else {CARD_LABELS: record}
    return msgspec.convert({"metadata": {"name": "n1", "labels": labels, "annotations": annotations}}, Node)


@pytest.mark.parametrize(
    ("labels", "record", "changed", "written"),
    [
        pytest.param({}, None, WANTED, RECORD, id="both are missing"),
        pytest.param({"product": "theirs"}, None, {"count": "2"}, '{"count":"2"}', id="somebody wrote one"),
        pytest.param({"product": "T4"}, None, {"count": "2"}, '{"count":"2"}', id="somebody wrote the same value"),
        pytest.param(
            {"product": "A10", "count": "2"},
            '{"count":"2","product":"A10"}',
            {"product": "T4"},
            RECORD,
            id="our value changes",
        ),
        pytest.param({"product": "theirs", "count": "2"}, RECORD, {}, '{"count":"2"}', id="somebody changed ours"),
        pytest.param(
            {**WANTED, "memory": "1"},
            '{"count":"2","memory":"1","product":"T4"}',
            {"memory": None},
            RECORD,
            id="one is wanted no more",
        ),
        pytest.param({"count": "2"}, "[", {"product": "T4"}, '{"product":"T4"}', id="the record cannot be read"),
    ],
)
def test_labels(labels: dict[str, str], record: str | None, changed: dict[str, str | None], written: str) -> None:
    assert node_labels.changes(node(labels, record), WANTED) == {
        "labels": changed,
        "annotations": {CARD_LABELS: written},
    }


@pytest.mark.parametrize(
    ("labels", "record", "wanted"),
    [
        pytest.param(WANTED, RECORD, WANTED, id="nothing changed"),
        pytest.param({"product": "theirs"}, None, {"product": "T4"}, id="all are somebody else's"),
    ],
)
def test_nothing_is_written_if_nothing_differs(
    labels: dict[str, str], record: str | None, wanted: dict[str, str]
) -> None:
    assert node_labels.changes(node(labels, record), wanted) == {}

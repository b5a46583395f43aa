"""A person's cordon of a card, as the server reads it."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects import cards_of, standard_dialects
from aliquot.model import Node, NodeGpus
from aliquot.model.records import INVENTORY, write_inventory
from tests.factories import make_cards, make_gpu, node_manifest

CARDS = make_cards()


def cordoned(annotations: dict[str, str], cards: NodeGpus | None = CARDS, **fields: Any) -> list[bool]:
    manifest = node_manifest("n1", **fields)
    inventory = {INVENTORY: write_inventory(cards)} if cards else {}
    manifest["metadata"]["annotations"] = {**inventory, **annotations}
    found = cards_of(msgspec.convert(manifest, Node), standard_dialects())
    return [gpu.cordoned for gpu in found.gpus]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, [False, False], id="no word"),
        pytest.param({"cordon.aliquot.io/GPU-n1-1": "true"}, [False, True], id="by uuid"),
        pytest.param({"cordon.aliquot.io/0": "true"}, [True, False], id="by index"),
        pytest.param({"cordon.aliquot.io/0": "false"}, [False, False], id="good"),
        pytest.param({"cordon.aliquot.io/0": "yes"}, [False, False], id="another word"),
        pytest.param({"cordon.aliquot.io/7": "true", "cordon.aliquot.io/": "true"}, [False, False], id="no such card"),
        pytest.param(
            {"cordon.aliquot.io/0": "false", "cordon.aliquot.io/GPU-n1-0": "true"}, [True, False], id="true wins"
        ),
    ],
)
def test_an_annotation_of_the_node_cordons_a_card(annotations: dict[str, str], expected: list[bool]) -> None:
    assert cordoned(annotations) == expected


def test_cards_without_an_agent_of_ours_are_cordoned_by_index() -> None:
    capacity = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    assert cordoned({"cordon.aliquot.io/1": "true"}, None, capacity=capacity) == [False, True]


def test_a_card_s_mig_instances_are_cordoned_with_it() -> None:
    cut = make_gpu(0), make_gpu(1), make_gpu(1000, uuid="MIG-1", parent="GPU-n1-0", profile="1g.5gb")
    assert cordoned({"cordon.aliquot.io/0": "true"}, NodeGpus("n1", cut, 1024)) == [True, False, True]


def test_an_unread_word_does_not_uncordon_what_the_agent_cordoned() -> None:
    gpus = (make_gpu(0, cordoned=True), make_gpu(1))
    assert cordoned({"cordon.aliquot.io/0": "false"}, NodeGpus("n1", gpus, 1024)) == [True, False]

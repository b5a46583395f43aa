"""The demo's machines."""

import pytest

from aliquot.app.demo.machines import MAX_AGENTS, plan
from aliquot.dialects import standard_dialects
from aliquot.embedded.gpus import MODELS
from aliquot.errors import BadConfig

DIALECTS = standard_dialects()


@pytest.mark.parametrize(
    ("agents", "nodes"),
    [
        pytest.param(MAX_AGENTS, None, id="as it comes"),
        pytest.param(1, 8, id="as few as possible"),
        pytest.param(2, 300, id="hundreds"),
    ],
)
def test_every_dialect_has_a_node_that_serves_it(agents: int, nodes: int | None) -> None:
    machines = plan(DIALECTS, agents, nodes)
    assert {name for machine in machines for name in machine.dialects} == set(DIALECTS)
    assert [machine.has_agent for machine in machines].count(True) == agents
    assert len({machine.name for machine in machines}) == len(machines) == (nodes or 8)
    assert sorted(machine.name for machine in machines) == [machine.name for machine in machines]
    assert {model for machine in machines for model in machine.models} <= MODELS.keys()


def test_the_models_are_mixed_also_on_one_node() -> None:
    machines = plan(DIALECTS)
    assert {model for machine in machines for model in machine.models} == MODELS.keys()
    assert any(len(set(machine.models)) > 1 for machine in machines)


def test_some_cards_are_linked_and_one_is_cut() -> None:
    machines = plan(DIALECTS)
    assert {machine.has_nvlinks for machine in machines} == {True, False}
    assert [machine.models[index] for machine in machines for index in machine.mig] == ["NVIDIA H100 80GB HBM3"]


def test_too_few_nodes_are_refused_with_how_many_it_takes() -> None:
    with pytest.raises(BadConfig, match=r"--nodes 3: the demo needs at least 8: two for gpushare .* aliquot, tencent"):
        plan(DIALECTS, 2, 3)

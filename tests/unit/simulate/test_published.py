"""FGD and best fit as their authors published them: one seed of the default list. `make bench` has all of them.

Their artifact's own run of FGD with this seed ended with 5,919,410 of 6,212,000 thousandths and 2,532 failed pods.
"""

from pathlib import Path

import pytest

from aliquot.simulate.csv_lists import read_nodes, read_pods
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.published_order import read_order
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import World

OPENB = Path(__file__).parents[4] / "shared" / "data" / "openb"

pytestmark = pytest.mark.skipif(
    not OPENB.exists(), reason=f"the openb trace is not in {OPENB.parent.name}/openb beside us"
)


def published(policy: str) -> RunResult:
    pods = read_pods(OPENB / "openb_pod_list_default.csv")
    world = World(read_nodes(OPENB / "openb_node_list_gpu_node.csv"), pods)
    order = read_order(OPENB / "arrivals" / "default_42.txt", world)
    return run(world, order, parsed_policy(policy), know_workload=True)


def test_fgd_is_as_published() -> None:
    result = published("fgd")
    assert result.allocated == pytest.approx(5919.41)
    assert len(result.failed) == 2532
    assert round(result.at(130).allocation, 2) == 95.29


def test_best_fit_is_as_published() -> None:
    assert round(published("bestfit").at(130).allocation, 2) == 93.13

"""How much pods ask for."""

import pytest

from aliquot.model import ContainerRequest, Life, Part, Request
from aliquot.simulate.demand import Demands
from aliquot.simulate.making import part_of_share
from aliquot.simulate.scenario import SimulatedPod
from tests.unit.simulate.worlds import node

WHOLE, HALF = Part(2, whole=True), part_of_share(1, 500)


@pytest.mark.parametrize(
    ("containers", "cards", "demand"),
    [
        ([(Life.INIT, WHOLE), (Life.MAIN, WHOLE)], 2, 2000),
        ([(Life.INIT, WHOLE), (Life.MAIN, HALF), (Life.MAIN, HALF)], 2, 2000),
        ([(Life.INIT, HALF), (Life.MAIN, WHOLE), (Life.MAIN, HALF)], 3, 2500),
        ([(Life.SIDECAR, HALF), (Life.INIT, WHOLE), (Life.MAIN, HALF)], 3, 2500),
    ],
)
def test_init_containers_do_not_run_beside_the_others(
    containers: list[tuple[Life, Part]], cards: int, demand: int
) -> None:
    parts = (ContainerRequest(str(place), part, life=life) for place, (life, part) in enumerate(containers))
    pod = SimulatedPod(Request("p", "p", "aliquot", tuple(parts)))
    assert pod.cards == cards
    assert Demands([node()]).of(pod) == demand

"""How many GPUs a pod needs, as nvidia-gpu-scheduler counts them: the sum of its main containers."""

import pytest

from aliquot.dialects import standard_dialects
from aliquot.model import Life
from tests.factories import container_manifest, make_pod

NVIDIA = standard_dialects()["nvidia"]


@pytest.mark.vectors
@pytest.mark.parametrize(
    ("limits", "need"),
    [pytest.param([2], 2, id="one container with 2"), pytest.param([2, 3], 5, id="two containers with 2 and 3")],
)
def test_need_is_the_sum_of_the_main_containers(limits: list[int], need: int) -> None:
    containers = [
        container_manifest(f"c{place}", None, resources={"limits": {"nvidia.com/gpu": str(count)}})
        for place, count in enumerate(limits)
    ]
    asked = NVIDIA.demand(make_pod(containers=containers)).containers
    assert sum(container.part.cards for container in asked if container.life is Life.MAIN) == need

"""An owned node with two models: a pod that asks for one of them gets a card of it."""

import pytest

from aliquot.model import NodeGpus
from tests.factories import make_gpu
from tests.integration.endpoints.running import running
from tests.integration.room import Room

GPU, MODEL = "nvidia.com/gpu", "nvidia.com/gpu.model"
MODELS = ("Tesla T4", "NVIDIA A10", "Tesla T4", "NVIDIA A10")
CARDS = NodeGpus("n1", tuple(make_gpu(index, model=model) for index, model in enumerate(MODELS)), 1024)


@pytest.mark.parametrize("dialect", ["nvidia", "hami"])
async def test_a_pod_that_asks_for_a_model_gets_a_card_of_it(room: Room, dialect: str) -> None:
    async with running(room, dialect, CARDS) as node:
        for name, model in (("a", "A10"), ("b", "T4"), ("c", "A10")):
            pod = await node.starts(name, {GPU: "1"}, {MODEL: model})
            (card,) = node.sees(pod)
            assert CARDS.by_uuid[card].model.endswith(model)
        assert await node.refusal("d", {GPU: "1"}, {MODEL: "A10"}) == {"not enough room on the node's GPUs now"}
        assert node.sees(await node.starts("e", {GPU: "1"})) == ["GPU-n1-2"]

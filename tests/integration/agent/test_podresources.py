"""PodResources, as kubelet answers it: rate limits included."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import pytest

from aliquot.agent import rpc
from aliquot.agent.podresources import HeldIds, PodCards, PodResources
from aliquot.agent.proto import podresources_pb2 as wire
from aliquot.errors import Refused
from tests.fakes import FakeClock


class FakeLister:
    """Refuses the first calls with a status, then lists two pods."""

    def __init__(
        self, socket: Path, refusals: int = 0, code: grpc.StatusCode = grpc.StatusCode.OK, version: str = "v1"
    ) -> None:
        self._refusals, self._code = refusals, code
        methods = {"List": rpc.unary(self._list, wire.ListPodResourcesRequest)}
        self._server = rpc.server(f"{version}.PodResourcesLister", methods, socket)

    async def __aenter__(self) -> None:
        await self._server.start()

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(grace=None)

    async def _list(self, _: wire.ListPodResourcesRequest, context: rpc.Context) -> wire.ListPodResourcesResponse:
        if self._refusals:
            self._refusals -= 1
            await context.abort(self._code, "rejected by rate limit")
        ours = wire.ContainerDevices(resource_name="aliyun.com/gpu-mem", device_ids=["a", "b"])
        theirs = wire.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["c"])
        container = wire.ContainerResources(name="main", devices=[ours, theirs])
        return wire.ListPodResourcesResponse(
            pod_resources=[
                wire.PodResources(name="p", namespace="default", containers=[container]),
                wire.PodResources(name="q", namespace="default"),
            ]
        )


@pytest.fixture
def clock() -> FakeClock:
    """Its pauses pass at once."""
    return FakeClock(skip=0.1)


LISTED = [HeldIds("default/p", "main", frozenset("ab"))]


async def test_only_the_ids_of_the_resource_are_listed(folder: Path, clock: FakeClock) -> None:
    async with FakeLister(folder / "kubelet.sock"):
        assert await PodResources(folder / "kubelet.sock", clock).holdings("aliyun.com/gpu-mem") == LISTED


async def test_an_older_kubelet_is_asked_in_its_own_version(folder: Path, clock: FakeClock) -> None:
    async with FakeLister(folder / "kubelet.sock", version="v1alpha1"):
        asked = PodResources(folder / "kubelet.sock", clock)
        assert await asked.holdings("aliyun.com/gpu-mem") == LISTED
        assert await asked.pods() == {"default/p", "default/q"}


async def test_the_cards_of_each_pod_are_listed_by_container(folder: Path, clock: FakeClock) -> None:
    async with FakeLister(folder / "kubelet.sock"):
        asked = PodResources(folder / "kubelet.sock", clock)
        both = [PodCards("default/p", {"main": ["a", "b", "c"]}), PodCards("default/q", {})]
        assert await asked.cards(lambda _, device: device) == both
        one = [PodCards("default/p", {"main": ["GPU-c"]}), PodCards("default/q", {})]
        assert await asked.cards(lambda name, device: f"GPU-{device}" if name == "nvidia.com/gpu" else "") == one


async def test_a_kubelet_that_is_asked_too_fast_is_asked_again(folder: Path, clock: FakeClock) -> None:
    async with FakeLister(folder / "kubelet.sock", refusals=2, code=grpc.StatusCode.RESOURCE_EXHAUSTED):
        assert await PodResources(folder / "kubelet.sock", clock).holdings("aliyun.com/gpu-mem") == LISTED


@pytest.mark.parametrize(
    ("refusals", "code"),
    [
        pytest.param(99, grpc.StatusCode.RESOURCE_EXHAUSTED, id="always too fast"),
        pytest.param(1, grpc.StatusCode.PERMISSION_DENIED, id="any other refusal"),
    ],
)
async def test_a_kubelet_that_does_not_answer_is_named(
    folder: Path, clock: FakeClock, refusals: int, code: grpc.StatusCode
) -> None:
    async with FakeLister(folder / "kubelet.sock", refusals, code):
        with pytest.raises(
            Refused, match=f"kubelet's PodResources API at {folder}/kubelet.sock failed: rejected by rate limit"
        ):
            await PodResources(folder / "kubelet.sock", clock).holdings("aliyun.com/gpu-mem")


async def test_a_socket_that_is_not_there_is_named(folder: Path, clock: FakeClock) -> None:
    with pytest.raises(Refused, match=f"kubelet's PodResources API at {folder}/kubelet.sock"):
        await PodResources(folder / "kubelet.sock", clock).holdings("aliyun.com/gpu-mem")

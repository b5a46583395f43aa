"""A kubelet before 1.20, as far as its PodResources API goes: v1alpha1 only. Today's kubelet still has both."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.checker import findings
from tests.e2e import pods
from tests.rig import Rig
from tests.rig.aliquot import Aliquot

pytestmark = pytest.mark.e2e

V1, V1ALPHA1 = "/v1.PodResourcesLister/List", "/v1alpha1.PodResourcesLister/List"


class OnlyV1Alpha1(grpc.GenericRpcHandler):
    """Passes calls of v1alpha1 on to kubelet, and knows no other version."""

    def __init__(self, kubelet: grpc.Channel) -> None:
        self._list: grpc.UnaryUnaryMultiCallable[bytes, bytes] = kubelet.unary_unary(V1ALPHA1)
        self.asked: set[str] = set()
        self.answered = 0

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        self.asked.add(call.method)
        return grpc.unary_unary_rpc_method_handler(self._answer) if call.method == V1ALPHA1 else None

    def _answer(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        answer: bytes = self._list(request, timeout=10)
        self.answered += 1
        return answer


@pytest.fixture
def kubelet(rig: Rig, aliquot: Aliquot) -> Iterator[OnlyV1Alpha1]:
    """The agent reaches kubelet's PodResources only through this one."""
    socket = Path(rig.folder) / "older.sock"
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{rig.pod_resources_socket}", options=options) as channel:
        older = OnlyV1Alpha1(channel)
        server = grpc.server(ThreadPoolExecutor(max_workers=4), handlers=[older])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        aliquot.agent.stop()
        aliquot.start_agent(flags=["--pod-resources", str(socket)])
        yield older
        pods.delete_all(rig)
        aliquot.agent.stop()
        server.stop(grace=None).wait()
        aliquot.start_agent()


def test_pods_get_their_cards_from_an_agent_that_has_v1alpha1_only(rig: Rig, kubelet: OnlyV1Alpha1) -> None:
    names = [f"equal-{number}" for number in range(6)]
    pods.create(rig, [pods.pod(name, units=5) for name in names])
    pods.wait_running(rig, names)
    assert findings(pods.observe(rig), [f"default/{name}" for name in names]) == []
    assert kubelet.asked == {V1, V1ALPHA1}
    assert kubelet.answered >= len(names)

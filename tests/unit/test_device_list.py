"""The list of ids that kubelet is offered, and kubelet's limit of 4 MiB for it."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from aliquot.agent.device_list import DeviceList, offered
from aliquot.agent.handover_store import HandOverStore
from aliquot.agent.id_holders import IdHolders
from aliquot.agent.kubelet_records import KubeletRecords
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NodePods
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.agent.proto.deviceplugin_pb2 import ListAndWatchResponse
from aliquot.dialects import Dialect, standard_dialects
from aliquot.errors import BadConfig
from aliquot.model import NodeGpus
from tests.factories import make_cards, make_gpu

GPUSHARE = standard_dialects()["gpushare"]
UUID = "GPU-4ffe26fe-7bda-4a5c-8b0a-1d0f3f4b6e0{}"
"""As long as a real one: 40 characters."""


def cards(count: int, mib: int, unit_mib: int = 1) -> NodeGpus:
    gpus = tuple(make_gpu(index, mib=mib, uuid=UUID.format(index)) for index in range(count))
    return NodeGpus("n1", gpus, unit_mib)


def device_list(dialect: Dialect, node: NodeGpus) -> ListAndWatchResponse:
    """The list of a dialect's first resource, on a node where nobody holds an id."""
    folder, current, pods = Path("no-such-folder"), NodeCards(node), NodePods(list)
    kubelet = KubeletRecords(folder, None)
    store = HandOverStore(standard_dialects(), current, NvidiaDevices(), pods, kubelet)
    holders = IdHolders(kubelet, store, pods, current)
    _, message = DeviceList(dialect, dialect.resources[0], current, holders).current()
    return message


@pytest.mark.parametrize(
    ("count", "mib", "size"),
    [
        pytest.param(1, 16276, 981726, id="1 x 16276"),
        pytest.param(4, 16276, 3926904, id="4 x 16276"),
        pytest.param(3, 22919, 4160847, id="3 x 22919, barely"),
    ],
)
def test_lists_within_kubelet_s_limit_have_the_sizes_of_the_original(count: int, mib: int, size: int) -> None:
    """As the original gpushare does it."""
    listed = device_list(GPUSHARE, cards(count, mib))
    assert (listed.ByteSize(), len(listed.devices)) == (size, count * mib)


@pytest.mark.parametrize(
    ("count", "mib", "size"),
    [
        pytest.param(5, 16276, 4908630, id="5 x 16276"),
        pytest.param(4, 22919, 5547796, id="4 x 22919"),
        pytest.param(1, 81920, 4986010, id="1 x 81920"),
        pytest.param(2, 46068, 5598076, id="2 x 46068"),
    ],
)
def test_lists_that_kubelet_would_drop_are_refused_with_the_numbers_and_the_way_out(
    count: int, mib: int, size: int
) -> None:
    expected = (
        f"aliyun.com/gpu-mem: the list of {count * mib} ids has {size} bytes, but kubelet accepts 4194304; "
        r"use a larger unit than 1 MiB \(--memory-unit\)"
    )
    with pytest.raises(BadConfig, match=expected):
        device_list(GPUSHARE, cards(count, mib))
    assert len(device_list(GPUSHARE, cards(count, mib, unit_mib=1024)).devices) == count * (mib // 1024)


def test_the_word_for_unhealthy_ids_counts_in_the_size() -> None:
    """It is two bytes longer."""
    node = cards(5, 16276)
    failed = replace(node, gpus=(replace(node.gpus[0], healthy=False), *node.gpus[1:]))
    with pytest.raises(BadConfig, match=f"has {4908630 + 2 * 16276} bytes"):
        device_list(GPUSHARE, failed)


def test_the_ids_of_an_unhealthy_card_are_offered_as_such() -> None:
    listed = device_list(GPUSHARE, make_cards(mib=(2048, 2048), unhealthy=[1]))
    assert [(device.ID, device.health) for device in listed.devices] == [
        ("GPU-n1-0-_-0", "Healthy"),
        ("GPU-n1-0-_-1", "Healthy"),
        ("GPU-n1-1-_-0", "Unhealthy"),
        ("GPU-n1-1-_-1", "Unhealthy"),
    ]


# -- which resources a node offers


ELASTIC = standard_dialects()["elastic"]


def offers(dialect: Dialect, node: NodeGpus) -> dict[str, int]:
    return {resource.name: len(listed.ids) for resource, listed in offered(dialect, node)}


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        pytest.param("gpushare", {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2}, id="every resource"),
        pytest.param("hami", {"nvidia.com/gpu": 20}, id="none that has no socket"),
        pytest.param("nvidia", {"nvidia.com/gpu": 2}, id="none of which the node has nothing"),
    ],
)
def test_a_node_offers_what_it_has(dialect: str, expected: dict[str, int]) -> None:
    assert offers(standard_dialects()[dialect], make_cards()) == expected


def test_a_further_resource_that_kubelet_would_drop_is_left_out_with_a_word_in_the_log() -> None:
    with capture_logs() as told:
        assert offers(ELASTIC, cards(8, 81920)) == {
            "elastic-gpu/gpu-percent": 800,
            "elasticgpu.io/gpu-core": 800,
            "elasticgpu.com/gpu-core": 800,
            "nano-gpu/gpu-percent": 800,
            "nano-gpu.io/gpu-core": 800,
        }
    prefixes = ("elasticgpu.io", "elasticgpu.com", "nano-gpu.io")
    assert [line["resource"] for line in told] == [f"{prefix}/gpu-memory" for prefix in prefixes]
    assert {line["event"] for line in told} == {"not offering a resource on this node"}
    assert told[0]["why"].endswith("the list of 655360 ids has 13018400 bytes, but kubelet accepts 4194304")


def test_a_first_resource_that_kubelet_would_drop_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"aliyun.com/gpu-mem: the list of 81920 ids"):
        offers(GPUSHARE, cards(1, 81920))

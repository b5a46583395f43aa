"""`kubectl inspect gpushare` on an API server."""

import asyncio

import pytest

from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.kubectl.inspect_gpushare import main
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.kubectl.command import run_to_end

pytestmark = pytest.mark.embedded_only("the kubeconfig is of the embedded one")


@pytest.fixture(autouse=True)
def _filled(scripted: ScriptedApi, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", admin)
    make = scripted.registry.create
    make(resources.NODES, "", node_manifest("gpu-1", make_cards("gpu-1")))
    make(resources.NODES, "", node_manifest("gpu-2", make_cards("gpu-2")))
    metadata = {"annotations": {IDX: "1"}}
    make(resources.PODS, "default", pod_manifest("held", 3, node="gpu-2", metadata=metadata))


async def inspect(*arguments: str) -> tuple[int, str, str]:
    found = await asyncio.to_thread(run_to_end, main, *arguments)
    return found.code, found.out, found.err


async def test_all_nodes() -> None:
    code, out, err = await inspect()
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)",
        "gpu-1  unknown    0/15                   0/15                   0/30",
        "gpu-2  unknown    0/15                   3/15                   3/30",
    ]


@pytest.mark.parametrize("arguments", [("-d", "gpu-2"), ("gpu-2", "-d"), ("--d=true", "gpu-2")])
async def test_one_node_with_its_pods(arguments: tuple[str, ...]) -> None:
    code, out, _ = await inspect(*arguments)
    assert code == 0
    assert "gpu-1" not in out
    assert "held         default    0                3                \n" in out


async def test_an_unknown_node_is_the_originals_one_line() -> None:
    assert await inspect("nosuch") == (1, 'Failed due to nodes "nosuch" not found', "")


async def test_help_and_unknown_flags() -> None:
    code, out, _ = await inspect("--help")
    assert (code, out.splitlines()[0]) == (0, "Usage: kubectl inspect gpushare [-d] [NODE]")
    code, _, err = await inspect("--all")
    assert (code, err.splitlines()[0]) == (2, "flag provided but not defined: -all")


@pytest.mark.parametrize("flags", [(), ("-d",)])
@pytest.mark.parametrize("count", ["1000000000", "9e99"])
async def test_a_forged_node_neither_hangs_the_command_nor_commands_the_terminal(
    scripted: ScriptedApi, flags: tuple[str, ...], count: str
) -> None:
    capacity = {"aliyun.com/gpu-count": count, "aliyun.com/gpu-mem": "1000000000000"}
    forged = node_manifest("gpu-3", make_cards("gpu-3"), capacity=capacity)
    forged["status"]["addresses"] = [{"type": "InternalIP", "address": "a\x1b[2J\u202eb"}]
    scripted.registry.create(resources.NODES, "", forged)
    code, out, _ = await inspect(*flags)
    assert (code, len(out) < 100_000) == (0, True)
    assert "a?[2J?b" in out

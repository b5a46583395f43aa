"""Who holds the ids of a PreStart call: kubelet's two records must agree."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.agent.checkpoint import Grant
from aliquot.agent.kubelet_records import CHECKPOINT, KubeletRecords, PodGrants, agree
from aliquot.agent.off_loop import off_loop
from aliquot.agent.podresources import HeldIds
from aliquot.errors import BadRecord, Refused


def grant(*ids: str, pod: str = "uid-1", container: str = "main") -> Grant:
    return Grant(pod, container, "r", frozenset(ids), (f"aliquot.io/gpu={container}",))


def holding(*ids: str, pod: str = "default/p", container: str = "main") -> HeldIds:
    return HeldIds(pod, container, frozenset(ids))


AGREED: list[Any] = [
    pytest.param("ab", [grant("a", "b")], [holding("a", "b")], "default/p", id="both name the same container"),
    pytest.param("ab", [grant("a", "b", container="init")], [], None, id="a plain init container is in one only"),
    pytest.param(
        "ab",
        [grant("a", "b", container="init"), grant("a")],
        [holding("a")],
        "default/p",
        id="init and main share ids",
    ),
    pytest.param(
        "ab",
        [grant("a", "b", container="init"), grant("a", "b")],
        [holding("a", "b")],
        "default/p",
        id="init and main have the same ids",
    ),
]


@pytest.mark.parametrize(("ids", "granted", "held", "pod"), AGREED)
def test_one_pod_with_all_its_grants_is_found(
    ids: str, granted: list[Grant], held: list[HeldIds], pod: str | None
) -> None:
    assert agree(frozenset(ids), granted, held) == PodGrants("uid-1", pod, tuple(granted))


REFUSED: list[Any] = [
    pytest.param("a", [], [holding("a")], "lists no container with exactly these 1 device ids", id="no grant at all"),
    pytest.param("abc", [grant("a", "b")], [], "lists no container with exactly these 3 device ids", id="too many ids"),
    pytest.param("a", [grant("a", "b")], [], "lists no container with exactly these 1 device ids", id="too few ids"),
    pytest.param(
        "a",
        [grant("a"), grant("a", pod="uid-2")],
        [],
        "the same device ids for several pods: uid-1, uid-2",
        id="two pods in the checkpoint",
    ),
    pytest.param(
        "a",
        [grant("a")],
        [holding("a"), holding("a", pod="default/q")],
        "the same device ids for several pods: default/p, default/q, uid-1",
        id="two pods in PodResources",
    ),
    pytest.param(
        "a",
        [grant("a")],
        [holding("a", container="other")],
        "PodResources lists containers that kubelet's checkpoint does not: other",
        id="another container in PodResources",
    ),
]


@pytest.mark.parametrize(("ids", "granted", "held", "text"), REFUSED)
def test_anything_unclear_is_refused(ids: str, granted: list[Grant], held: list[HeldIds], text: str) -> None:
    with pytest.raises(Refused, match=text):
        agree(frozenset(ids), granted, held)


# -- reading the checkpoint


def checkpoint_of(*pods: str) -> bytes:
    shared = {"ContainerName": "main", "ResourceName": "r", "DeviceIDs": {"-1": ["a"]}}
    entries = [{"PodUID": pod, **shared} for pod in pods]
    return msgspec.json.encode({"Data": {"PodDeviceEntries": entries}})


READS: list[tuple[str, Callable[[KubeletRecords], Awaitable[Any]]]] = [
    ("find", lambda records: records.find("r", frozenset(("a",)))),
    ("keeps", lambda records: records.keeps({"uid-1": "default/p"})),
    ("granted", lambda records: records.granted("r")),
    ("grants", lambda records: records.grants()),
    ("known_grants", lambda records: records.known_grants()),
]


@pytest.mark.parametrize("read", [read for _, read in READS], ids=[name for name, _ in READS])
async def test_a_slow_disk_holds_up_nobody_else(tmp_path: Path, read: Callable[[KubeletRecords], Any]) -> None:
    """A pipe that nobody writes to blocks whoever opens it."""
    path = tmp_path / CHECKPOINT
    os.mkfifo(path)
    reading = asyncio.create_task(read(KubeletRecords(tmp_path, None)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not reading.done()
    await off_loop(partial(path.write_bytes, checkpoint_of("uid-1")))
    assert await reading


async def test_a_checkpoint_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    path, records = tmp_path / CHECKPOINT, KubeletRecords(tmp_path, None)
    path.write_bytes(checkpoint_of("uid-1"))
    first = await records.known_grants()
    assert [grant.pod_uid for grant in first] == ["uid-1"]
    assert await records.known_grants() is first
    (tmp_path / "new").write_bytes(checkpoint_of("uid-1", "uid-2"))
    (tmp_path / "new").rename(path)
    assert [grant.pod_uid for grant in await records.known_grants()] == ["uid-1", "uid-2"]


async def test_a_checkpoint_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    path, records = tmp_path / CHECKPOINT, KubeletRecords(tmp_path, None)
    with pytest.raises(BadRecord):
        await records.known_grants()
    path.write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(BadRecord):
            await records.known_grants()

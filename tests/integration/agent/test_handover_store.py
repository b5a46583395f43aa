"""The agent remembers what it handed over, through restarts, and until kubelet has dropped the pod."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.agent.kubelet_records import CHECKPOINT, KubeletRecords
from aliquot.agent.podresources import PodResources
from aliquot.dialects.gpushare import ASSIGNED, IDX
from aliquot.errors import Refused
from aliquot.model.records import PLACEMENT
from tests.factories import container_manifest
from tests.fakes import FakeRuntime, answer, until
from tests.integration.agent.node import AgentNode, ended, runs

OVERCOMMITS = "would over-commit this node: card GPU-n1-{} has 5120 MiB"


async def test_a_record_that_is_rewritten_is_not_believed_by_an_agent_that_was_started_anew(node: AgentNode) -> None:
    first = await node.admitted("first", 10, card=0)
    await node.start(first)
    node.show(runs(node.placed(first, 1)))
    await node.restart_agent()
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10, card=0))
    assert (await node.start(await node.admitted("third", 10, card=1)))[IDX] == "1"
    assert (await node.start(first))["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-0", "a container that starts again"


@pytest.mark.parametrize("record", ["{", '{"v":9}'], ids=["one that cannot be read", "one of a later version"])
async def test_nor_is_one_that_is_broken(node: AgentNode, record: str) -> None:
    first = await node.admitted("first", 10, card=0)
    await node.start(first)
    node.show(runs(node.annotated(first, **{PLACEMENT: record, ASSIGNED: "true"})))
    await node.restart_agent()
    assert (await node.start(await node.admitted("whole", 15, card=1)))[IDX] == "1"
    assert (await node.start(first))[IDX] == "0"


async def test_a_restart_between_hand_over_and_status_does_not_hand_the_card_out_twice(node: AgentNode) -> None:
    """The API server shows neither a mark nor a container that runs."""
    first = await node.admitted("first", 10)
    node.api.script("PATCH", "/pods/first$", answer(500, message="not now"))
    with pytest.raises(Refused, match="not now"):
        await node.start(first)
    await node.restart_agent()
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10))
    assert (await node.start(first))[IDX] == "0"


@pytest.mark.parametrize("restarts", [False, True], ids=["", "with a restart"])
async def test_a_pod_deleted_by_force_has_its_card_until_kubelet_drops_it(node: AgentNode, restarts: bool) -> None:
    first = await node.admitted("first", 10)
    await node.start(first)
    node.delete_by_force(first)
    if restarts:
        await node.restart_agent()
    second = await node.admitted("second", 10)
    assert OVERCOMMITS.format(0) in await node.refusal(second)
    node.kubelet.release(first.metadata.uid)
    assert (await node.start(second))[IDX] == "0"


async def test_the_parts_of_init_and_main_containers_are_remembered_as_they_were_charged(node: AgentNode) -> None:
    """The init container's part is given back: 12 of 15 units are held, not 16."""
    first = await node.admitted(
        "first", containers=[container_manifest("main", 12)], initContainers=[container_manifest("fetch", 4)]
    )
    await node.start_all(first)
    await node.restart_agent()
    assert (await node.start(await node.admitted("fits", 3)))[IDX] == "0"


# -- who has dropped a pod: kubelet's checkpoint, its public word, and the container runtime


@pytest.mark.parametrize(
    ("in_checkpoint", "looked_after", "state", "kept"),
    [
        pytest.param(True, True, "running", True, id="it runs"),
        pytest.param(True, True, None, True, id="between two containers"),
        pytest.param(False, False, "running", True, id="deleted by force, and forgotten by kubelet"),
        pytest.param(False, False, "created", True, id="a container that is about to start"),
        pytest.param(False, False, "exited", False, id="its containers have ended"),
        pytest.param(True, False, "exited", False, id="only the checkpoint is not written anew yet"),
        pytest.param(False, False, None, False, id="nobody has it"),
    ],
)
async def test_a_pod_is_kept_while_its_containers_may_run(
    node: AgentNode, in_checkpoint: bool, looked_after: bool, state: str | None, kept: bool
) -> None:
    pod = await node.admitted()
    path = node.kubelet.folder / CHECKPOINT
    before = path.read_bytes()
    if not looked_after:
        node.kubelet.release(pod.metadata.uid)
    if in_checkpoint:
        path.write_bytes(before)
    containers = {pod.metadata.uid: state} if state else {}
    socket = node.cdi_folder.parent / "cri.sock"
    async with FakeRuntime(socket, {}, containers):
        holders = KubeletRecords(node.kubelet.folder, PodResources(node.kubelet.pod_resources, node.clock), socket)
        assert await holders.keeps({pod.metadata.uid: pod.key}) == ({pod.metadata.uid} if kept else set())


async def test_while_the_runtime_does_not_answer_nothing_is_forgotten(node: AgentNode) -> None:
    first = await node.admitted("first", 10)
    await node.start(first)
    node.runtime = node.cdi_folder.parent / "cri.sock"
    await node.restart_agent()
    node.delete_by_force(first)
    node.kubelet.release(first.metadata.uid)
    second = await node.admitted("second", 10)
    assert OVERCOMMITS.format(0) in await node.refusal(second)
    async with FakeRuntime(node.runtime, {}, {first.metadata.uid: "running"}):
        assert OVERCOMMITS.format(0) in await node.refusal(second)
    async with FakeRuntime(node.runtime, {}, {first.metadata.uid: "exited"}):
        assert (await node.start(second))[IDX] == "0"


@pytest.mark.parametrize("restarts", [pytest.param(False, id="agent"), pytest.param(True, id="restarted agent")])
async def test_a_pod_that_the_control_plane_fails_holds_its_card_until_its_containers_have_ended(
    node: AgentNode, *, restarts: bool
) -> None:
    """kubelet had no time to report that they run, and forgets the pod at once."""
    first = await node.admitted("first", 10)
    await node.start(first)
    node.runtime = node.cdi_folder.parent / "cri.sock"
    containers = {first.metadata.uid: "running"}
    async with FakeRuntime(node.runtime, {}, containers):
        await node.restart_agent()
        node.show(ended(first))
        node.kubelet.release(first.metadata.uid)
        if restarts:
            await node.restart_agent()
        await node.tidy()
        second = await node.admitted("second", 10)
        assert OVERCOMMITS.format(0) in await node.refusal(second)
        containers[first.metadata.uid] = "exited"
        assert (await node.start(second))[IDX] == "0"
        await node.tidy()
        assert first.metadata.uid not in node.hand_over.store


async def test_a_pod_waits_until_the_containers_of_a_failed_one_have_ended(node: AgentNode) -> None:
    """No change of a pod tells it."""
    first = await node.admitted("first", 10)
    await node.start(first)
    node.runtime = node.cdi_folder.parent / "cri.sock"
    containers = {first.metadata.uid: "running"}
    async with FakeRuntime(node.runtime, {}, containers):
        await node.restart_agent()
        node.show(ended(first))
        starting = asyncio.create_task(node.start(await node.admitted("second", 10)))
        await until(lambda: node.clock.sleeping, "the hand-over waits")
        containers[first.metadata.uid] = "exited"
        await node.clock.move(2)
        assert (await starting)[IDX] == "0"


async def test_a_pod_that_is_failed_before_its_container_starts_gets_nothing(node: AgentNode) -> None:
    pod = await node.admitted()
    node.show(ended(pod))
    with pytest.raises(Refused, match="pod default/p is already Succeeded"):
        await node.start(pod)


# -- specs


async def test_a_spec_is_removed_when_its_pod_has_ended_or_kubelet_has_dropped_it(node: AgentNode) -> None:
    running, forced, over = [await node.admitted(name, 3) for name in ("running", "forced", "over")]
    specs = [node.spec(pod) for pod in (running, forced, over)]
    for pod in (running, forced, over):
        await node.start(pod)
    node.delete_by_force(forced)
    node.show(ended(over))
    await node.tidy()
    assert [path.exists() for path in specs] == [True, True, False]
    node.kubelet.release(forced.metadata.uid)
    await node.tidy()
    assert [path.exists() for path in specs] == [True, False, False]


async def test_a_spec_is_removed_although_another_hand_over_has_forgotten_its_pod(node: AgentNode) -> None:
    """The pod is deleted before the agent tidies up. kubelet writes its checkpoint anew when it next allocates ids."""
    over, other = await node.admitted("over", 3), await node.admitted("other", 3)
    node.runtime = node.cdi_folder.parent / "cri.sock"
    async with FakeRuntime(node.runtime, {}, {}):
        await node.restart_agent()
        await node.start(over)
        spec = node.spec(over)
        node.show(ended(over))
        await node.start(other)
        assert over.metadata.uid not in node.hand_over.store
        node.delete_by_force(over)
        path = node.kubelet.folder / CHECKPOINT
        before = path.read_bytes()
        node.kubelet.release(over.metadata.uid)
        path.write_bytes(before)
        await node.tidy()
    assert not spec.exists()


async def test_nothing_is_removed_while_kubelet_s_checkpoint_cannot_be_read(node: AgentNode) -> None:
    first, broken = await node.admitted("first", 3), await node.admitted("broken", 3)
    specs = [node.spec(pod) for pod in (first, broken)]
    for pod in (first, broken):
        await node.start(pod)
        node.delete_by_force(pod)
    specs[1].write_text("{")
    (node.kubelet.folder / CHECKPOINT).unlink()
    await node.tidy()
    assert all(spec.exists() for spec in specs)


def without_record(path: Path) -> None:
    """As agents wrote specs before they wrote down what was handed over."""
    written = msgspec.json.decode(path.read_bytes())
    del written["annotations"]["aliquot.io/handed-over"]
    path.write_bytes(msgspec.json.encode(written))


async def test_an_older_agent_s_spec_is_enough_where_the_pod_s_record_agrees(node: AgentNode) -> None:
    first = await node.admitted("first", 10)
    await node.start(first)
    without_record(node.spec(first))
    await node.restart_agent()
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10))
    assert (await node.start(await node.admitted("third", 5)))[IDX] == "0"
    assert (await node.start(first))[IDX] == "0"


async def test_an_older_agent_s_spec_outweighs_a_record_that_names_another_card(node: AgentNode) -> None:
    first = await node.admitted("first", 10)
    await node.start(first)
    without_record(node.spec(first))
    node.show(runs(node.placed(first, 1)))
    await node.restart_agent()
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10))
    assert (await node.start(await node.admitted("third", 10, card=1)))[IDX] == "1"
    with pytest.raises(Refused, match="names different cards from the CDI spec that it started with"):
        await node.start(first)


async def test_an_older_agent_s_spec_of_a_pod_that_is_gone_holds_its_whole_card(node: AgentNode) -> None:
    first = await node.admitted("first", 3)
    await node.start(first)
    without_record(node.spec(first))
    node.delete_by_force(first)
    await node.restart_agent()
    assert "would over-commit this node" in await node.refusal(await node.admitted("second", 1))
    assert (await node.start(await node.admitted("third", 15, card=1)))[IDX] == "1"


def break_it(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def forge(path: Path) -> None:
    path.write_text(path.read_text().replace("GPU-n1-0", "GPU-n1-1").replace("10240", "-10240"))


BROKEN: list[Any] = [pytest.param(break_it, id="half of it"), pytest.param(forge, id="with parts that give room")]


@pytest.mark.parametrize("spoil", BROKEN)
async def test_a_spec_that_cannot_be_read_is_named_and_its_pod_counts_on_every_card(
    node: AgentNode, spoil: Callable[[Path], None]
) -> None:
    first, other = await node.admitted("first", 10, card=0), await node.admitted("other", 3, card=1)
    await node.start(first)
    await node.start(other)
    spec = node.spec(first)
    spoil(spec)
    with capture_logs() as told:
        await node.restart_agent()
    assert [line["path"] for line in told if line["event"] == "cannot trust a CDI spec"] == [str(spec)]
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10, card=0))
    with pytest.raises(Refused, match=f"do not say which cards it holds .{spec}.; remove them once the pod has ended"):
        await node.start(first)
    assert (await node.start(other))[IDX] == "1", "nobody else is hurt"
    await node.tidy()
    assert spec.exists(), "it is kept while kubelet has the pod"
    node.delete_by_force(first)
    node.kubelet.release(first.metadata.uid)
    await node.tidy()
    assert not spec.exists()


async def test_a_spec_that_was_promised_for_another_pod_is_not_believed(node: AgentNode) -> None:
    first, other = await node.admitted("first", 10, card=0), await node.admitted("other", 3, card=1)
    await node.start(first)
    await node.start(other)
    node.spec(first).write_bytes(node.spec(other).read_bytes())
    with capture_logs() as told:
        await node.restart_agent()
    (line,) = (line for line in told if line["event"] == "cannot trust a CDI spec")
    assert line["why"] == f"it names pod {other.metadata.uid}, but kubelet's checkpoint names pod {first.metadata.uid}"
    assert OVERCOMMITS.format(0) in await node.refusal(await node.admitted("second", 10, card=0))
    assert (await node.start(other))[IDX] == "1"


async def test_specs_of_one_pod_that_differ_are_not_believed(node: AgentNode) -> None:
    first = await node.admitted(
        "first", containers=[container_manifest("main", 5), container_manifest("side", 5)], card=0
    )
    await node.start_all(first)
    spec = node.spec(first)
    spec.write_text(spec.read_text().replace("GPU-n1-0", "GPU-n1-1"))
    await node.restart_agent()
    for card in (0, 1):
        assert OVERCOMMITS.format(card) in await node.refusal(await node.admitted(f"second-{card}", 10, card=card))


async def test_a_spec_that_kubelet_was_never_promised_is_removed_if_it_cannot_be_read(node: AgentNode) -> None:
    odd = node.cdi_folder / "aliquot.io-gpu_odd.json"
    odd.write_text("{")
    await node.restart_agent()
    assert (await node.start(await node.admitted("whole", 15)))[IDX] == "0"
    await node.tidy()
    assert not odd.exists()

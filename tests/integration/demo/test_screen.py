"""What the demo shows of its demo: the live picture in terminals of any size, and the plain table."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from rich.console import Console

from aliquot.app.demo import plain_text, samples, screen
from aliquot.app.demo.cluster import DemoCluster
from aliquot.app.demo.workload import LABEL, Workload
from aliquot.embedded.nodes import SCRIPT
from aliquot.kube import PODS
from tests.factories import pod_manifest
from tests.fakes import FakeClock, until

SIZES = [(100, 40), (200, 60), (80, 24), (60, 15), (40, 10), (20, 8)]


@pytest.fixture
async def demo(folder: Path) -> AsyncIterator[DemoCluster]:
    async with DemoCluster(folder) as running:
        await samples.create(running.client, running.samples)
        await running.until(lambda: samples.all_run(running.samples, running.plane.pods.all()))
        yield running


def drawn(demo: DemoCluster, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(screen.picture(demo, width, height))
    return captured.get().splitlines()


async def test_the_picture_shows_cards_and_pods_and_why_one_waits(demo: DemoCluster) -> None:
    await demo.client.create(PODS, pod_manifest("too-large", 81), "default")
    await until(lambda: any("FailedScheduling" in line for line in drawn(demo, 100, 40)))
    text = "\n".join(drawn(demo, 100, 40))
    for sample in demo.samples:
        assert sample.name.rpartition("/")[2] in text
    assert "gpu-1  gpushare*  0 T4              ██░░░░░░░░ 3/15   shared " in text
    assert "waits  too-large  0/8 nodes are available:" in text
    assert "9 run  1 wait" in text
    assert "\n                  3010 MIG 1g.10gb  ██████████ 10/10  ██████ 100% " in text
    assert text.count("  2 H100 80GB ") == 1, "only that of gpu-3: the one of gpu-7 is cut, so it is not sold"
    last = drawn(demo, 200, 40)[-1]
    assert f"kubectl --kubeconfig {demo.kubeconfig}" in last
    assert last.endswith("* real agent"), "all of its nodes have it"


async def test_the_picture_shows_that_a_card_has_failed(demo: DemoCluster) -> None:
    cards = demo.gpus["gpu-3"]
    cards.fail(cards.read().gpus[0].uuid, "XID 79")
    await until(lambda: any("0 H100 80GB " in line and " failed " in line for line in drawn(demo, 100, 40)))
    assert sum(" failed " in line for line in drawn(demo, 100, 40)[1:]) == 1


async def test_the_picture_fits_terminals_of_any_size(demo: DemoCluster) -> None:
    for number in range(9):
        await demo.client.create(PODS, pod_manifest(f"waits-{number}", 81 + number), "default")
    await until(lambda: len([p for p in demo.plane.pods.all() if p.status.conditions and not p.spec.node_name]) == 9)
    for width, height in SIZES:
        lines = drawn(demo, width, height)
        assert len(lines) <= height, (width, height)
        assert max(map(len, lines)) <= width, (width, height)
        assert any("gpu-1" in line for line in lines), (width, height)
        assert any("waits" in line for line in lines), (width, height)


async def test_the_list_of_things_to_try_has_our_own_command(
    demo: DemoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_text.welcome(demo, stays=True)
    assert f"  .venv/bin/kubectl-gpu nodes --kubeconfig {demo.kubeconfig}\n" in capsys.readouterr().out


async def test_the_table_has_a_row_for_every_sample(demo: DemoCluster, capsys: pytest.CaptureFixture[str]) -> None:
    plain_text.table(demo)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["POD", "DIALECT", "NODE", "GPUS", "(simulated)", "CORES", "MEMORY", "HAND-OVER"]
    assert [row.split()[1] for row in rows] == [sample.dialect.name for sample in demo.samples]
    by_dialect = {row.split()[1]: row for row in rows}
    assert by_dialect["gpushare"].split() == (
        ["default/binpack-1", "gpushare", "gpu-1", "0:", "Tesla", "T4", "shared", "3072", "MiB", "real", "agent"]
    )
    assert all(row.endswith("real agent") for row in rows)
    (pair,) = (row for row in rows if "default/linked-pair " in row)
    assert "0: NVIDIA H100 80GB HBM3, 1: NVIDIA H100 80GB HBM3  50% each" in pair
    (instance,) = (row for row in rows if "default/mig-instance " in row)
    assert "gpu-7  3010: NVIDIA H100 80GB HBM3 MIG 1g.10gb " in instance


async def test_the_log_of_a_container_says_what_it_would_find_and_that_device_numbers_are_no_indexes(
    demo: DemoCluster,
) -> None:
    url = f"{demo.cluster.url}/api/v1/namespaces/default/pods/binpack-1/log"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    assert "[binpack-1] ALIYUN_COM_GPU_MEM_IDX=0\n" in text
    assert "may differ from the card's index" in text


async def test_what_does_not_run_is_told_with_its_reason(demo: DemoCluster) -> None:
    await demo.client.delete(PODS, "binpack-1", "default")
    await demo.until(lambda: demo.plane.pods.get("default/binpack-1") is None)
    assert plain_text.missing(demo) == "default/binpack-1 (gpushare): its pod does not exist"
    await demo.client.create(PODS, pod_manifest("binpack-1", 81), "default")
    await until(lambda: "0/8 nodes are available" in plain_text.missing(demo))


async def test_jobs_of_the_stream_come_and_go_and_leave_others_alone(demo: DemoCluster) -> None:
    clock = FakeClock()
    await demo.client.create(PODS, pod_manifest("mine", metadata={"annotations": {SCRIPT: "runs 0s"}}), "default")
    stream = asyncio.create_task(Workload(demo.client, demo.plane, demo.samples, clock=clock).run())

    def own() -> list[str]:
        return [pod.key for pod in demo.plane.pods.all() if LABEL in pod.metadata.labels]

    await until(lambda: len(own()) > 3, "jobs come", passing=clock)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert demo.plane.pods.get("default/mine") is not None


async def test_a_job_that_has_ended_or_waited_for_long_is_removed(demo: DemoCluster) -> None:
    clock = FakeClock()
    workload = Workload(demo.client, demo.plane, demo.samples, clock=clock)
    label = {LABEL: "true"}
    ended = pod_manifest("ended", metadata={"labels": label, "annotations": {SCRIPT: "runs 0s, then fails"}})
    waits = pod_manifest("waits", 81, metadata={"labels": label})
    runs = pod_manifest("runs", metadata={"labels": label})
    for manifest in (ended, waits, runs, pod_manifest("other", 82)):
        await demo.client.create(PODS, manifest, "default")
    phases = {"default/ended": "Failed", "default/waits": "Pending", "default/runs": "Running"}
    await demo.until(
        lambda: all(
            (pod := demo.plane.pods.get(key)) is not None and (pod.status.phase or "Pending") == phase
            for key, phase in phases.items()
        )
    )
    await workload.tidy()
    await clock.move(20)
    await workload.tidy()
    await demo.until(lambda: demo.plane.pods.get("default/ended") is None)
    assert demo.plane.pods.get("default/waits") is not None
    await clock.move(30)
    await workload.tidy()
    await demo.until(lambda: demo.plane.pods.get("default/waits") is None)
    assert demo.plane.pods.get("default/runs") is not None
    assert demo.plane.pods.get("default/other") is not None


async def test_samples_can_be_applied_again_without_a_warning(demo: DemoCluster) -> None:
    """`kubectl apply` warns of objects that have not its annotation."""
    for sample in demo.samples:
        manifest = sample.dialect.sample_workload()
        plural = {"Pod": "pods", "Deployment": "deployments.apps", "Job": "jobs.batch"}[manifest["kind"]]
        held = demo.cluster.store.get(plural, (manifest["metadata"]["namespace"], manifest["metadata"]["name"]))
        assert held is not None
        applied = msgspec.json.decode(
            held.obj["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        )
        assert applied["spec"] == manifest["spec"]

"""/metrics of the cluster: who holds what, who uses what, who waits, in a bounded number of series."""

import re
from datetime import datetime
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.control.state.events import NodeSeen
from aliquot.control.waiting.schedule import FIRST_SECONDS
from aliquot.embedded.api import resources
from aliquot.endpoints.gathering import gather
from aliquot.endpoints.gathering.queue import waited
from aliquot.endpoints.metrics import read
from aliquot.kube import LEASES
from aliquot.kube.resources import Lease
from aliquot.model.bounds import MIB
from aliquot.model.load import LOAD, CardLoad, NodeLoad, PodLoad, write_load
from aliquot.model.records import NODE_LEASES
from aliquot.reports.nodes import nodes_report
from aliquot.reports.of_plane import leaders_verdict, view_of_plane
from aliquot.reports.report import NO_USE
from tests.factories import make_cards, make_node, make_pod
from tests.fakes import FakeClock, until
from tests.integration.room import Room
from tests.settings import server_config

UNIT = 1024 * MIB


async def samples(room: Room, prefix: str = "") -> dict[str, float]:
    await read(room.plane)
    lines = [line.rpartition(" ") for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if name.startswith(prefix)}


@pytest.fixture(autouse=True)
def no_rows_of_other_tests() -> None:
    for table in metrics.TABLES:
        table.rows = ()


async def test_what_pods_hold_is_shown_by_model_node_card_namespace_and_pod(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360, 15360)))
    await room.commit(await room.add_pod("p", 3), "n1")
    await room.commit(await room.add_pod("q", 12), "n1")
    found = await samples(room)
    assert found['aliquot_model_cards{model="Tesla T4"}'] == 2
    assert found['aliquot_model_allocated_cards{model="Tesla T4"}'] == pytest.approx(1.0)
    assert found['aliquot_model_memory_bytes{model="Tesla T4"}'] == 30 * UNIT
    assert found['aliquot_model_allocated_memory_bytes{model="Tesla T4"}'] == 15 * UNIT
    assert found['aliquot_node_cards{node="n1"}'] == 2
    assert found['aliquot_node_allocated_cards{node="n1"}'] == pytest.approx(1.0)
    assert found['aliquot_node_allocated_memory_bytes{node="n1"}'] == 15 * UNIT
    cards = [value for name, value in found.items() if name.startswith("aliquot_card_allocated_ratio{")]
    assert sorted(cards) == pytest.approx([0.0, 1.0])
    assert found['aliquot_namespace_allocated_cards{model="Tesla T4",namespace="default"}'] == pytest.approx(1.0)
    assert found['aliquot_namespace_pods{namespace="default"}'] == 2
    assert found['aliquot_pod_allocated_cards{namespace="default",node="n1",pod="p"}'] == pytest.approx(0.2)
    assert found['aliquot_pod_allocated_memory_bytes{namespace="default",node="n1",pod="q"}'] == 12 * UNIT
    assert found['aliquot_hidden{what="pods"}'] == 0


async def test_cards_that_nobody_can_get_are_unavailable_stranded_or_starved(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360, 15360), unhealthy=(0, 1)))
    await room.add_node(make_cards("n2", mib=(15360,)))
    await room.commit(await room.add_pod("p", 14), "n2")
    found = await samples(room)
    assert found['aliquot_model_unavailable_cards{model="Tesla T4"}'] == 2
    assert found['aliquot_model_stranded_cards{model="Tesla T4"}'] == pytest.approx(1 / 15, abs=0.001)
    assert found["aliquot_fragmented_cards"] == pytest.approx(1 / 15, abs=0.001)
    assert found["aliquot_starved_cards"] == 0


async def test_only_the_largest_have_series_of_their_own_and_the_others_are_counted(room: Room) -> None:
    room.plane.settings = server_config(metrics__nodes=1, metrics__cards=1, metrics__pods=1)
    for node in ("n1", "n2"):
        await room.add_node(make_cards(node, mib=(15360, 15360)))
    for pod, units in (("small", 2), ("large", 9), ("medium", 5)):
        await room.commit(await room.add_pod(pod, units), "n2")
    found = await samples(room)
    assert [name for name in found if name.startswith("aliquot_node_cards{")] == ['aliquot_node_cards{node="n2"}']
    (pod,) = [name for name in found if name.startswith("aliquot_pod_allocated_cards{")]
    assert 'pod="large"' in pod
    assert len([name for name in found if name.startswith("aliquot_card_allocated_memory_bytes{")]) == 1
    hidden = {name: value for name, value in found.items() if name.startswith("aliquot_hidden{")}
    assert list(hidden.values()) == [3, 0, 1, 2], hidden
    assert found['aliquot_model_cards{model="Tesla T4"}'] == 4, "sums are of all"


# -- use


class Agent:
    """The agent of n1, as far as its Lease shows it."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._beats = 0

    async def report(self, busy: float, **used: float) -> None:
        """How busy every card is, and what pods use of theirs, by their names."""
        self._beats += 1
        cluster, heartbeats = self._room.plane.cluster, self._room.plane.heartbeats
        cards = {gpu.uuid: CardLoad(busy, 2 * UNIT) for gpu in cluster.cards("n1").gpus}
        pods = {
            entry.uid: dict.fromkeys(entry.charges, PodLoad(UNIT, used[entry.owner.pod.removeprefix("default/")]))
            for entry in cluster.ledger.entries("n1")
            if entry.owner.pod.removeprefix("default/") in used
        }
        text = write_load(NodeLoad(float(self._beats), cards, pods))
        spec = {"leaseDurationSeconds": 60, "renewTime": f"2026-01-01T00:00:00.{self._beats:06}Z"}
        metadata = {"name": "n1", "namespace": NODE_LEASES, "annotations": {LOAD: text}}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        if self._beats == 1:
            self._room.api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})
            await self._room.client.create(LEASES, body, NODE_LEASES)
        else:
            await self._room.client.patch(LEASES, "n1", body, namespace=NODE_LEASES)
        await until(lambda: _text(heartbeats.leases.get(f"{NODE_LEASES}/n1")) == text, "the Lease is seen")


def _text(lease: Lease | None) -> str:
    return lease.metadata.annotations[LOAD] if lease is not None else ""


async def test_what_pods_use_is_shown_beside_what_they_hold(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    for name, units in (("p", 3), ("q", 6)):
        await room.commit(await room.add_pod(name, units), "n1")
    agent = Agent(room)
    for _ in range(2):
        await agent.report(0.75, p=0.5, q=0.25)
    found = await samples(room)
    assert found['aliquot_pod_used_cards{namespace="default",node="n1",pod="p"}'] == 0.5
    assert found['aliquot_pod_used_memory_bytes{namespace="default",node="n1",pod="q"}'] == UNIT
    assert found['aliquot_pod_idle_seconds{namespace="default",node="n1",pod="p"}'] == 0
    assert found['aliquot_namespace_measured_cards{namespace="default"}'] == pytest.approx(0.6)
    assert found['aliquot_namespace_used_cards{namespace="default"}'] == 0.75
    assert found['aliquot_namespace_used_memory_bytes{namespace="default"}'] == 2 * UNIT
    assert found['aliquot_pod_unused_cards{namespace="default",node="n1",pod="p"}'] == 0
    assert found['aliquot_pod_unused_cards{namespace="default",node="n1",pod="q"}'] == pytest.approx(0.4 - 0.25)
    assert found['aliquot_namespace_unused_cards{namespace="default"}'] == pytest.approx(0.4 - 0.25)
    assert found['aliquot_namespace_idle_cards{namespace="default"}'] == 0
    assert found['aliquot_node_agent_silence_seconds{node="n1"}'] == 0


async def test_cards_that_pods_hold_and_do_not_use_are_idle_after_ten_minutes(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    for name, units in (("p", 3), ("q", 6)):
        await room.commit(await room.add_pod(name, units), "n1")
    agent = Agent(room)
    for _ in range(25):
        await agent.report(0.5, q=0.5)
        await room.clock.move(30)
    found = await samples(room)
    assert found['aliquot_pod_idle_seconds{namespace="default",node="n1",pod="p"}'] >= 600
    assert found['aliquot_namespace_idle_cards{namespace="default"}'] == pytest.approx(0.2)


async def test_use_is_not_shown_once_its_sample_is_old(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    await room.commit(await room.add_pod("p", 3), "n1")
    agent = Agent(room)
    for _ in range(2):
        await agent.report(0.5, p=0.5)
    await room.clock.move(61)
    found = await samples(room)
    assert not [name for name in found if "_used_" in name and not name.startswith("aliquot_quota")]
    assert found["aliquot_silent_agents"] == 1
    (shown,) = nodes_report(view_of_plane(room.plane)).nodes
    assert (shown.silent_seconds, shown.cards[0].use) == (61, NO_USE), "reports say the same"
    assert found['aliquot_node_agent_silence_seconds{node="n1"}'] == 61


async def test_a_pod_that_is_gone_has_no_series(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    pod = await room.add_pod("p", 3)
    await room.commit(pod, "n1")
    agent = Agent(room)
    for _ in range(2):
        await agent.report(0.5, p=0.5)
    assert await samples(room, "aliquot_pod_")
    await room.delete_pod(pod)
    await agent.report(0.5)
    assert await samples(room, "aliquot_pod_") == {}
    assert room.plane.heartbeats.history.pod(pod.metadata.uid) is None


# -- the queue


async def test_pods_that_wait_are_counted_by_the_reason_that_is_on_them(room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    for name, units in (("large", 15), ("huge", 99), ("fits", 3), ("without-gpu", None)):
        await room.add_pod(name, units)
    await room.add_pod("gated", 3, schedulingGates=[{"name": "later"}])
    await room.add_pod("others", 3, schedulerName="another-scheduler")
    await room.add_pod("elsewhere", 3, nodeSelector={"zone": "far"})
    limits = {"aliyun.com/gpu-memory": "3"}
    containers = [{"name": "main", "image": "i", "resources": {"limits": limits, "requests": limits}}]
    await room.add_pod("misspelt", None, containers=containers)
    await room.commit(await room.add_pod("holder", 3), "n1")
    await room.in_sync()
    assert await _reasons(room) == {"Unknown": 5, "SchedulingGated": 1, "OtherScheduler": 1}, "not judged yet"
    await room.clock.move(FIRST_SECONDS)
    await room.plane.waiting_reasons.look(partial(leaders_verdict, room.plane))
    assert await _reasons(room) == {
        "NoRoom": 1,
        "TooLarge": 1,
        "Fits": 1,
        "NodeSelector": 1,
        "NoSuchResource": 1,
        "SchedulingGated": 1,
        "OtherScheduler": 1,
        "Unknown": 0,
    }


async def _reasons(room: Room) -> dict[str, float]:
    found = await samples(room, "aliquot_waiting_pods")
    return {re.findall(r'"(.*)"', name)[0]: count for name, count in found.items()}


async def test_a_queue_without_pods_is_0_and_not_absent(room: Room) -> None:
    found = await samples(room, "aliquot_waiting_pods")
    assert found
    assert set(found.values()) == {0}


async def test_the_age_of_the_oldest_pod_that_waits_is_shown(room: Room) -> None:
    await room.add_pod("p", 3)
    assert list(await samples(room, "aliquot_longest_wait_seconds")) == [
        'aliquot_longest_wait_seconds{reason="Unknown"}'
    ]


@pytest.mark.parametrize(
    ("created", "seconds"),
    [("2026-05-04T12:00:00Z", 90.0), ("2026-05-04T12:30:00Z", 0.0), (None, 0.0), ("yesterday", 0.0)],
)
def test_a_pod_has_waited_since_it_was_created_and_never_less_than_nothing(created: str, seconds: float) -> None:
    now = datetime.fromisoformat("2026-05-04T12:01:30Z").timestamp()
    assert waited(make_pod("p", 3, metadata={"creationTimestamp": created}), now) == seconds


async def test_a_scrape_lets_others_go_first(room: Room) -> None:
    """Time passes with every look at the clock: each stretch is one step long."""
    ticking = TickingClock()
    plane = ControlPlane(room.client, ticking, settings=server_config(lease__enabled=False))
    for number in range(20):
        plane.cluster.apply(NodeSeen(make_node(f"n{number}", make_cards(f"n{number}"))))
    assert sum(1 for _ in gather(plane)) > 20


class TickingClock(FakeClock):
    def monotonic(self) -> float:
        self._now += 0.01
        return self._now


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "plain"])
def test_labels_are_escaped_as_prometheus_reads_them(name: str) -> None:
    table = metrics.GaugeTable("aliquot_test", "A test.", ("model", "node"), [((name, "n1"), 1.5)])
    (family,) = text_string_to_metric_families(table.text())
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"model": name, "node": "n1"}, 1.5)]


def test_labels_stand_in_the_order_in_which_the_library_writes_them() -> None:
    assert all(list(table.labels) == sorted(table.labels) for table in metrics.TABLES)

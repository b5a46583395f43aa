"""The audit finds what the cluster state has wrong, puts it right and says so; and it never cries wolf."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from structlog.testing import capture_logs

from aliquot import metrics
from aliquot.control.audit.audit import Audit
from aliquot.control.state.events import Claimed, HostTaken, NodeLost, NodeSeen, PodForgotten, Recounted
from aliquot.dialects.gpushare import ASSIGNED, IDX
from aliquot.errors import AliquotError
from aliquot.kube import PODS
from aliquot.ledger import Owner
from aliquot.model import Charge, Host, Pod
from aliquot.model.records import PLACEMENT
from tests.factories import make_cards, make_node, make_request
from tests.fakes import Fault, Next, answer, cut_after, cut_before, held, late, until
from tests.integration.control.history import histories, play
from tests.integration.room import Room


def audit_of(room: Room, is_pending: Callable[[str, str], bool] | None = None) -> Audit:
    plane = room.plane
    return Audit(
        plane.client,
        plane.cluster,
        plane.nodes,
        plane.pods,
        pods_on=plane.pods_on,
        is_pending=is_pending or plane.transactions.is_pending,
        clock=plane.clock,
    )


async def two_bound_pods(room: Room) -> tuple[Pod, Pod]:
    await room.add_node()
    pods = (await room.add_pod("a", 4), await room.add_pod("b", 5))
    for pod in pods:
        await room.commit(pod, "n1")
    await room.in_sync()
    return pods


# -- what is wrong, and what the audit makes of it


def _forgets(room: Room, pod: Pod) -> None:
    room.plane.cluster.apply(PodForgotten(pod.metadata.uid))


def _charges_less(room: Room, pod: Pod) -> None:
    entry = room.entries()[pod.metadata.uid]
    less = {uuid: charge._replace(mib=1024) for uuid, charge in entry.charges.items()}
    room.plane.cluster.ledger.adopt(entry.owner, entry.placement, less)
    room.plane.cluster.apply(Recounted("n1"))


def _charges_more(room: Room, pod: Pod) -> None:
    entry = room.entries()[pod.metadata.uid]
    more = {gpu.uuid: Charge(0, 8192, shares=1) for gpu in room.plane.cluster.cards("n1").gpus}
    room.plane.cluster.ledger.adopt(entry.owner, entry.placement, more)
    room.plane.cluster.apply(Recounted("n1"))


def _holds_elsewhere(room: Room, pod: Pod) -> None:
    entry = room.entries()[pod.metadata.uid]
    claim = replace(entry.placement, node="n2")
    room.plane.cluster.ledger.restore([replace(entry, placement=claim)])


def _holds_for_nobody(room: Room, _: Pod) -> None:
    placement = next(iter(room.entries().values())).placement
    room.plane.cluster.ledger.adopt(Owner("gone", "default/gone"), placement, {"GPU-n1-0": Charge(0, 1024, shares=1)})
    room.plane.cluster.apply(Recounted("n1"))


def _claims_for_nobody(room: Room, _: Pod) -> None:
    placement = next(iter(room.entries().values())).placement
    room.plane.cluster.apply(Claimed(make_request(1, uid="gone"), placement))


def _adds_up_wrong(room: Room, _: Pod) -> None:
    cluster = room.plane.cluster
    entry = next(iter(cluster.ledger.entries("n1")))
    cluster.ledger.adopt(entry.owner, entry.placement, {})  # the Fleet does not hear of it
    cluster.ledger.adopt(entry.owner, entry.placement, entry.charges)
    cluster.fleet.put(cluster.cards("n1"), {})


def _counts_quotas_wrong(room: Room, pod: Pod) -> None:
    room.plane.cluster.totals.usage.remove(pod.metadata.uid, "n1")


def _has_other_cards(room: Room, _: Pod) -> None:
    cards = make_cards(mib=(1024,))
    cluster = room.plane.cluster
    cluster.totals.put_cards(cards)


def _has_lost_a_node(room: Room, _: Pod) -> None:
    room.plane.cluster.apply(NodeLost("n1"))


def _has_a_node_too_many(room: Room, _: Pod) -> None:
    room.plane.cluster.apply(NodeSeen(make_node("n9", make_cards("n9"))))


def _forgets_its_cpu(room: Room, pod: Pod) -> None:
    room.plane.cluster.totals.vacate_host(pod.metadata.uid)


def _counts_another_cpu(room: Room, pod: Pod) -> None:
    room.plane.cluster.apply(HostTaken(pod.metadata.uid, "n1", Host(1, 1)))


def _counts_the_cpu_of_nobody(room: Room, _: Pod) -> None:
    room.plane.cluster.apply(HostTaken("gone", "n1", Host(1, 1)))


def _adds_up_cpu_wrong(room: Room, _: Pod) -> None:
    room.plane.cluster.fleet.set_host("n1", Host(1, 1))


def _offers_another_cpu(room: Room, _: Pod) -> None:
    room.plane.cluster.totals.offer_host("n1", Host(1, 1))


WRONG: list[Any] = [
    pytest.param(_forgets, {"lost"}, id="a bound pod holds nothing"),
    pytest.param(_charges_less, {"charge"}, id="a pod holds less than it has"),
    pytest.param(_charges_more, {"charge"}, id="a pod holds more than it has"),
    pytest.param(_holds_elsewhere, {"claim"}, id="a pod holds something where it is not"),
    pytest.param(_holds_for_nobody, {"ghost"}, id="a pod that is no more holds something"),
    pytest.param(_claims_for_nobody, {"ghost"}, id="a claim that nobody works on"),
    pytest.param(_adds_up_wrong, {"fleet"}, id="the Fleet shows room that is sold"),
    pytest.param(_counts_quotas_wrong, {"quota"}, id="a namespace uses more than is counted"),
    pytest.param(_has_other_cards, {"cards"}, id="a node's cards are others"),
    pytest.param(_has_lost_a_node, {"cards"}, id="a node is not known"),
    pytest.param(_has_a_node_too_many, {"cards"}, id="a node that is no more is known"),
    pytest.param(_forgets_its_cpu, {"host"}, id="a bound pod takes no CPU"),
    pytest.param(_counts_another_cpu, {"host"}, id="a bound pod takes another CPU"),
    pytest.param(_counts_the_cpu_of_nobody, {"host"}, id="a pod that is no more takes CPU"),
    pytest.param(_adds_up_cpu_wrong, {"host"}, id="the Fleet shows CPU that is not left"),
    pytest.param(_offers_another_cpu, {"host"}, id="a node's CPU is another"),
]


@pytest.mark.parametrize(("breaks", "kinds"), WRONG)
async def test_what_the_books_have_wrong_is_found_put_right_and_said(
    room: Room, breaks: Callable[[Room, Pod], None], kinds: set[str]
) -> None:
    pod, _ = await two_bound_pods(room)
    audit = audit_of(room)
    assert await audit.look() == []
    breaks(room, pod)
    with capture_logs() as told:
        found = await audit.look()
    assert {drift.kind for drift in found} == kinds
    lines = [line for line in told if line["event"] == "the cluster state differed from the API server"]
    assert {line["kind"] for line in lines} == kinds
    assert room.used() == {0: 9}
    assert room.plane.cluster.ledger.nodes_of(pod.metadata.uid) == {"n1"}
    assert room.plane.cluster.totals.nodes == ["n1"]
    assert room.plane.cluster.fleet.host("n1").cpu == 32_000
    assert await audit.look() == []


async def test_a_difference_is_told_with_pod_node_what_was_and_what_is(room: Room) -> None:
    pod, _ = await two_bound_pods(room)
    _forgets(room, pod)
    (drift,) = await audit_of(room).look()
    assert drift.words() == {
        "kind": "lost",
        "pod": "default/a",
        "node": "n1",
        "was": "nothing",
        "now": "GPU-n1-0 4096 MiB",
    }


async def test_less_than_a_pod_has_is_put_right_at_the_first_audit(room: Room) -> None:
    pod, _ = await two_bound_pods(room)
    _charges_less(room, pod)
    assert [drift.kind for drift in await audit_of(room).look()] == ["charge"]
    assert room.used() == {0: 9}


async def test_a_claim_on_a_waiting_pod_that_nobody_works_on_is_given_back(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    demand = room.plane.cluster.demand_of(pod)
    assert demand is not None
    placement = room.plane.cluster.judge(demand).placement("n1")
    assert placement is not None
    room.plane.cluster.apply(Claimed(demand.request, placement))
    assert [drift.kind for drift in await audit_of(room).look()] == ["claim"]
    assert room.used() == {}


# -- records that users rewrite


REWRITTEN: list[Any] = [
    pytest.param({PLACEMENT: "{"}, id="a record that cannot be read"),
    pytest.param({PLACEMENT: None, IDX: None}, id="no record"),
    pytest.param({IDX: "1", PLACEMENT: None}, id="another card"),
    pytest.param({PLACEMENT: "{", ASSIGNED: "true"}, id="every card"),
]


@pytest.mark.parametrize("has_looked", [True, False])
@pytest.mark.parametrize("annotations", REWRITTEN)
async def test_a_record_that_was_rewritten_is_reported_once_and_gains_nothing(
    room: Room, annotations: dict[str, Any], has_looked: bool
) -> None:
    pod, _ = await two_bound_pods(room)
    audit = audit_of(room)
    if has_looked:
        assert await audit.look() == []
    await room.annotate(pod, **annotations)
    assert [drift.kind for drift in await audit.look()] == ["forged"]
    assert room.used() == {0: 9}
    assert await audit.look() == []
    await room.report(pod, phase="Pending", message="changes nothing of it")
    assert await audit.look() == []


# -- what is on its way is no difference


async def test_a_binding_that_is_on_its_way_is_no_difference(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", held(arrived, release))
    commit = asyncio.create_task(room.commit(pod, "n1"))
    await arrived.wait()
    assert await audit_of(room).look() == []
    release.set()
    await commit
    assert await audit_of(room).look() == []
    assert room.used() == {0: 3}


@pytest.mark.parametrize("fault", [pytest.param(cut_before, id="not made"), pytest.param(cut_after, id="made")])
async def test_a_binding_without_an_answer_is_no_difference(room: Room, fault: Any) -> None:
    await room.add_node()
    pod = await room.add_pod()
    room.api.script("POST", "/binding$", fault)
    with pytest.raises(AliquotError):
        await room.commit(pod, "n1")
    audit = audit_of(room)
    for _ in range(2):
        assert await audit.look() == []
        assert room.used() == {0: 3}
        await room.clock.move(60)


async def test_a_claim_for_a_while_is_no_difference_until_it_is_overdue(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    demand = room.plane.cluster.demand_of(pod)
    assert demand is not None
    placement = room.plane.cluster.judge(demand).placement("n1")
    assert placement is not None
    room.plane.cluster.apply(Claimed(demand.request, placement, room.clock.monotonic() + 30))
    assert await audit_of(room).look() == []


async def test_a_pod_that_changes_between_list_and_comparison_is_no_difference(room: Room) -> None:
    """The list is answered late: by then the pod has gone, and another came."""
    a, b = await two_bound_pods(room)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("GET", r"/pods\?limit", late(arrived, release))
    looking = asyncio.create_task(audit_of(room).look())
    await arrived.wait()
    await room.delete_pod(a)
    await room.annotate(b, note="changed")
    await room.commit(await room.add_pod("c", 6), "n1")
    await room.in_sync()
    release.set()
    assert await looking == []
    assert room.used() == {0: 11}


async def test_a_pod_that_is_placed_late_between_list_and_comparison_is_no_difference(room: Room) -> None:
    """The cluster state hears of it from the patch's own answer, before the informer does."""
    await room.add_node()
    pod = await room.add_pod("p", 4, node="n1")
    audit, opened = audit_of(room), asyncio.Event()
    room.api.script("GET", r"/pods\?.*watch=true", silent(opened))
    room.api.cut_watches("pods")
    await until(opened.is_set, "the informer watches again")
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("GET", r"/pods\?limit", late(arrived, release))
    looking = asyncio.create_task(audit.look())
    await arrived.wait()
    await room.plane.late.look()
    assert PLACEMENT in room.api_pod(pod)["metadata"]["annotations"]
    release.set()
    assert await looking == []
    assert room.used() == {0: 4}


async def test_a_watch_that_lags_is_no_difference_and_one_that_has_gone_silent_is(room: Room) -> None:
    pod, _ = await two_bound_pods(room)
    audit, opened = audit_of(room), asyncio.Event()
    room.api.script("GET", r"/pods\?.*watch=true", silent(opened))
    room.api.cut_watches("pods")
    await until(opened.is_set, "the informer watches again", passing=room.clock)
    await room.client.delete(PODS, pod.metadata.name, "default", grace=0)
    assert await audit.look() == []
    await room.clock.move(10)
    assert await audit.look() == []
    await room.clock.move(60)
    assert [(drift.kind, drift.now) for drift in await audit.look()] == [("missed", "default/a")]
    assert room.used() == {0: 5}
    assert await audit.look() == []


def silent(opened: asyncio.Event) -> Fault:
    """A watch that is open and tells nothing, whatever happens."""

    async def say_nothing(request: web.Request, _: Next) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        opened.set()
        await asyncio.Event().wait()
        return response

    return say_nothing


async def test_an_audit_that_the_api_server_refuses_changes_nothing_and_the_next_one_looks_again(room: Room) -> None:
    pod, _ = await two_bound_pods(room)
    audit = audit_of(room)
    room.api.script("GET", r"/pods\?limit", answer(403))
    running = asyncio.create_task(audit.run(lambda: 60.0))
    _forgets(room, pod)
    await room.clock.move(61)
    await until(lambda: room.used() == {0: 9}, passing=room.clock)
    running.cancel()


async def test_the_control_plane_audits_its_books_by_itself(room: Room) -> None:
    pod, _ = await two_bound_pods(room)
    before = _counted("lost")
    _forgets(room, pod)
    await until(lambda: room.used() == {0: 9}, passing=room.clock)
    assert _counted("lost") == before + 1


def _counted(kind: str) -> float:
    return metrics.REGISTRY.get_sample_value("aliquot_audit_drift_total", {"kind": kind}) or 0.0


async def play_audited(history: list[tuple[Any, ...]]) -> None:
    """Raises AssertionError if an audit after any step finds a difference."""
    audits: dict[Room, Audit] = {}

    async def audited(room: Room) -> None:
        assert await audits.setdefault(room, audit_of(room)).look() == []

    await play(history, audited)


@settings(max_examples=25)
@given(histories)
async def test_a_busy_cluster_has_no_drift(history: list[tuple[Any, ...]]) -> None:
    await play_audited(history)


async def test_an_audit_amid_commits_finds_nothing(room: Room) -> None:
    """Audits run all the time while pods are bound, end and are deleted."""
    await room.add_node(make_cards(mib=(80 * 1024,) * 4))
    audit = audit_of(room)
    found: list[Any] = []
    done = asyncio.Event()

    async def look_all_the_time() -> None:
        while not done.is_set():
            found.extend(await audit.look())

    looking = asyncio.create_task(look_all_the_time())
    pods = [await room.add_pod(f"p{number}", 1) for number in range(60)]
    await asyncio.gather(*(room.commit(pod, "n1") for pod in pods))
    for pod in pods[::2]:
        await room.delete_pod(pod)
    done.set()
    await looking
    assert found == []
    assert sum(room.used().values()) == 30

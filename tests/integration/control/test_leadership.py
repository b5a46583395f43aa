"""Several servers, one of which commits: who it is, how the next one takes over, and what becomes of the last.

Each server has a clock of its own: one that stands still is a server that was paused and does not know it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from aliquot.control import ControlPlane, Role
from aliquot.control.admission import STALE_EPOCH, manifests
from aliquot.dialects import standard_dialects
from aliquot.embedded.api import resources
from aliquot.errors import NotLeading
from aliquot.kube import Access, Client, NoAnswer
from aliquot.model import Pod
from aliquot.model.records import EPOCH
from tests.factories import container_manifest, make_cards, node_manifest, pod_manifest
from tests.fakes import FakeClock, Fault, Next, ScriptedApi, answer, cut_after, held, until
from tests.integration.room import patient

pytestmark = pytest.mark.embedded_only(
    "clocks are moved by hand, policies of a real server need time: tests/e2e has it"
)

EPOCH_MAP = "/configmaps/aliquot-epoch"
BINDING = "/binding$"
TERM_WATCH = r"/namespaces/aliquot-system/configmaps\?.*watch=true"
POD_WATCH = r"/api/v1/pods\?.*watch=true"


@dataclass
class Server:
    plane: ControlPlane
    clock: FakeClock
    task: asyncio.Task[None]

    def role(self) -> Role:
        return self.plane.leadership.role

    async def leads(self) -> None:
        await until(lambda: self.role() is Role.LEADING, "it leads")


class Servers:
    """Makes servers on one API server; all end with the test."""

    def __init__(self, api: ScriptedApi, stack: AsyncExitStack) -> None:
        self.api = api
        self._stack = stack

    async def start(self, name: str, **settings: Any) -> Server:
        client = await self._stack.enter_async_context(Client(Access(self.api.url)))
        clock = FakeClock()
        plane = ControlPlane(client, clock, settings=patient(**settings), identity=name)
        task = asyncio.create_task(plane.run())
        self._stack.push_async_callback(_end, task)
        await until(lambda: not plane.out_of_sync() and plane.leadership.holder, f"{name} follows the cluster")
        return Server(plane, clock, task)

    def add_pod(self, name: str = "p", units: int = 3) -> None:
        self.api.registry.create(resources.PODS, "default", pod_manifest(name, units))

    def stored(self, name: str = "p") -> Any:
        held = self.api.store.get("pods", ("default", name))
        assert held is not None
        return held.obj

    def epoch(self) -> str:
        held = self.api.store.get("configmaps", ("aliquot-system", "aliquot-epoch"))
        assert held is not None
        return str(held.obj["data"]["epoch"])


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def servers(scripted: ScriptedApi) -> AsyncIterator[Servers]:
    """On a cluster with one node of two cards, and with the policies."""
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "aliquot-system"}})
    scripted.registry.create(resources.NODES, "", node_manifest("n1", make_cards("n1")))
    for manifest in manifests(standard_dialects()):
        is_policy = manifest["kind"] == "ValidatingAdmissionPolicy"
        kind = resources.POLICIES if is_policy else resources.POLICY_BINDINGS
        scripted.registry.create(kind, "", manifest)
    async with AsyncExitStack() as stack:
        yield Servers(scripted, stack)


async def pod_of(server: Server, name: str = "p") -> Pod:
    await until(lambda: server.plane.pods.get(f"default/{name}") is not None, f"{name} is seen")
    pod = server.plane.pods.get(f"default/{name}")
    assert pod is not None
    return pod


async def test_the_first_server_leads_in_the_first_term_and_writes_its_number(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    servers.add_pod()
    assert not (await first.plane.committer.commit(await pod_of(first), "n1")).already
    assert (servers.epoch(), servers.stored()["metadata"]["annotations"][EPOCH]) == ("1", "1")


async def test_a_second_server_follows_and_says_who_leads(servers: Servers) -> None:
    first = await servers.start("first")
    first.plane.leadership.advertise({"gpushare": "http://10.0.0.1:12345"})
    await first.leads()
    second = await servers.start("second")
    assert (second.role(), second.plane.leadership.holder, second.plane.not_ready()) == (Role.FOLLOWING, "first", [])
    servers.add_pod()
    with pytest.raises(NotLeading, match="this server is not the leader; first is"):
        await second.plane.committer.commit(await pod_of(second), "n1")
    assert not [seen for seen in servers.api.bindings() if "/pods/p/" in seen.path]
    assert second.plane.cluster.ledger.nodes_of(servers.stored()["metadata"]["uid"]) == set()


async def test_a_paused_leader_cannot_commit_when_it_wakes(servers: Servers) -> None:
    """Its own clock stood still and it hears nothing, so it still believes in its Lease: the API server stops it."""
    servers.api.script("GET", TERM_WATCH, held(asyncio.Event(), asyncio.Event()))
    first = await servers.start("first")
    await first.leads()
    second = await servers.start("second")
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)
    assert first.role() is Role.LEADING
    servers.add_pod()
    pod = await pod_of(first)
    with pytest.raises(NotLeading):
        await first.plane.committer.commit(pod, "n1")
    assert first.role() is not Role.LEADING
    assert first.plane.cluster.ledger.nodes_of(pod.metadata.uid) == set(), "its claim is given back"
    assert not (await second.plane.committer.commit(await pod_of(second), "n1")).already
    assert servers.stored()["metadata"]["annotations"][EPOCH] == "2"


async def test_a_leader_that_hears_of_a_later_term_stops_by_itself(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    second = await servers.start("second")
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)
    await until(lambda: first.role() is Role.FOLLOWING, "it hears of the second term")
    assert servers.api.bindings() == [seen for seen in servers.api.bindings() if "aliquot-epoch-probe" in seen.path]


async def test_a_new_leader_knows_what_the_last_one_bound_before_it_commits(servers: Servers) -> None:
    """Its watch told it nothing: it lists again before its first commit."""
    first = await servers.start("first")
    await first.leads()
    servers.add_pod("before")
    await pod_of(first, "before")  # so its watch is open, and what follows is the second one's
    servers.api.script("GET", POD_WATCH, held(asyncio.Event(), asyncio.Event()))
    second = await servers.start("second")
    servers.add_pod("taken", 15)
    await first.plane.committer.commit(await pod_of(first, "taken"), "n1")
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)
    uid = servers.stored("taken")["metadata"]["uid"]
    assert second.plane.cluster.ledger.nodes_of(uid) == {"n1"}


async def test_a_server_that_ends_gives_its_lease_back_and_the_next_one_need_not_wait(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    second = await servers.start("second")
    await _end(first.task)
    await second.clock.move(3)
    await second.leads()
    assert servers.epoch() == "2"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(answer(409, message="somebody was faster"), id="conflict"),
        pytest.param(answer(500, message="oops"), id="error"),
        pytest.param(cut_after, id="lost answer"),
    ],
)
async def test_a_term_begins_though_the_number_cannot_be_written_at_once(servers: Servers, fault: Any) -> None:
    servers.api.registry.create(
        resources.CONFIG_MAPS, "aliquot-system", {"metadata": {"name": "aliquot-epoch"}, "data": {"epoch": "7"}}
    )
    servers.api.script("PATCH", EPOCH_MAP, fault)
    first = await servers.start("first")
    await until(lambda: first.role() is Role.LEADING, passing=first.clock, between_calls_of=servers.api)
    assert first.plane.leadership.epoch == int(servers.epoch()) > 7


async def test_a_number_that_is_none_stops_the_term_and_says_so(servers: Servers) -> None:
    servers.api.registry.create(
        resources.CONFIG_MAPS, "aliquot-system", {"metadata": {"name": "aliquot-epoch"}, "data": {"epoch": "many"}}
    )
    first = await servers.start("first")
    why = "cannot raise the epoch: ConfigMap aliquot-system/aliquot-epoch, epoch: 'many' is not a number"
    await until(lambda: first.plane.not_ready() == [f"this server is taking over: {why}"], "it says why")
    assert first.role() is Role.FOLLOWING


async def test_without_the_policy_a_leader_leads_and_says_that_nothing_fences_it(servers: Servers) -> None:
    for bound in list(servers.api.store.snapshot(resources.POLICY_BINDINGS.collection)):
        servers.api.store.remove(resources.POLICY_BINDINGS.collection, ("", bound.obj["metadata"]["name"]))
    first = await servers.start("first")
    await first.leads()
    assert any("no admission policy checks the epoch" in note for note in first.plane.notes())


async def test_an_unknown_answer_to_a_binding_keeps_its_claim_and_the_term(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    servers.add_pod()
    servers.api.script("POST", BINDING, cut_after)
    pod = await pod_of(first)
    with pytest.raises(NoAnswer):
        await first.plane.committer.commit(pod, "n1")
    assert first.role() is Role.LEADING
    await until(lambda: first.plane.cluster.is_settled(pod.metadata.uid, "n1"), "the pod is seen bound")


async def test_a_leader_that_cannot_renew_stops_believing_in_itself(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    servers.api.script("PATCH", "/leases/", *[answer(500)] * 100)
    servers.add_pod()
    pod = await pod_of(first)
    await until(lambda: first.role() is Role.FOLLOWING, passing=first.clock, between_calls_of=servers.api)
    with pytest.raises(NotLeading):
        await first.plane.committer.commit(pod, "n1")


async def test_an_api_server_that_never_notices_the_new_number_is_named_with_what_helps(servers: Servers) -> None:
    """kube-apiserver does that when all policies were deleted and made again while it ran."""
    stale = answer(422, reason="Invalid", message=f"denied: {STALE_EPOCH}")
    servers.api.script("POST", "/pods/aliquot-epoch-probe/binding", *[stale] * 5000)
    first = await servers.start("first")
    await until(
        lambda: "restart kube-apiserver" in first.plane.leadership.no_holder(),
        passing=first.clock,
        between_calls_of=servers.api,
    )
    for more in range(10):
        wanted = len(servers.api.bindings()) + more
        await until(partial(_has_bindings, servers.api, wanted), passing=first.clock, between_calls_of=servers.api)
        assert "restart kube-apiserver" in first.plane.leadership.no_holder(), "and goes on saying so"
    assert first.role() is Role.FOLLOWING


def _has_bindings(api: ScriptedApi, count: int) -> bool:
    return len(api.bindings()) >= count


async def test_a_number_that_somebody_raises_meanwhile_is_raised_once_more(servers: Servers) -> None:
    """A person's edit, or a backup that was restored: otherwise the new leader would wait for ever."""
    arrived, release = asyncio.Event(), asyncio.Event()
    servers.api.script("POST", "/pods/aliquot-epoch-probe/binding", held(arrived, release))
    first = await servers.start("first")
    await arrived.wait()
    servers.api.registry.patch(
        resources.CONFIG_MAPS, "aliquot-system", "aliquot-epoch", lambda held: {**held, "data": {"epoch": "41"}}
    )
    release.set()
    await until(lambda: first.role() is Role.LEADING, passing=first.clock, between_calls_of=servers.api)
    assert first.plane.leadership.epoch == 42


async def test_a_leader_that_has_stopped_believing_is_no_known_holder(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    servers.api.script("PATCH", "/leases/", *[answer(500, message="oops")] * 100)
    await until(lambda: first.role() is Role.FOLLOWING, passing=first.clock, between_calls_of=servers.api)
    assert first.plane.not_ready() != []


async def test_a_server_that_may_not_lead_leaves_the_lease_to_others_and_says_why(servers: Servers) -> None:
    """Such as one with a person's account, where the policies let only Aliquot's own write placements."""
    refused = answer(403, reason="Forbidden", message="you may not write aliquot.io/epoch")
    servers.api.script("POST", "/pods/aliquot-epoch-probe/binding", refused)
    first = await servers.start("first")
    await until(lambda: first.plane.leadership.holder == "", "it gives the Lease back")
    assert "may not become leader and leaves it to others: you may not write" in first.plane.not_ready()[0]
    second = await servers.start("second")
    await second.leads()
    await until(lambda: first.plane.leadership.holder == "second", passing=first.clock, between_calls_of=servers.api)
    assert first.plane.not_ready() == []
    assert any("may not become leader" in note for note in first.plane.notes())


POD_LIST = r"/api/v1/pods\?.*limit="


def failing_while(is_broken: asyncio.Event) -> Fault:
    refuse = answer(500, message="oops")

    async def fail(request: web.Request, go_on: Next) -> web.StreamResponse:
        return await (refuse(request, go_on) if is_broken.is_set() else go_on(request))

    return fail


async def test_a_list_that_fails_during_a_takeover_is_made_again(servers: Servers) -> None:
    first = await servers.start("first")
    await first.leads()
    second = await servers.start("second")
    servers.api.script("GET", POD_LIST, answer(500, message="oops"))
    await _end(first.task)
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)


async def test_a_takeover_that_does_not_come_to_an_end_gives_the_lease_back_and_is_tried_again(
    servers: Servers,
) -> None:
    first = await servers.start("first")
    await first.leads()
    second = await servers.start("second")
    is_broken = asyncio.Event()
    is_broken.set()
    servers.api.script("GET", POD_LIST, *[failing_while(is_broken)] * 100)
    await _end(first.task)
    leadership = second.plane.leadership
    with capture_logs() as told:
        await until(lambda: leadership.holder == "second", passing=second.clock, between_calls_of=servers.api)
        await until(lambda: leadership.holder == "", passing=second.clock, between_calls_of=servers.api)
    (line,) = [line for line in told if line["event"] == "releasing the Lease"]
    assert line["why"].startswith("this server could not take over within 120 s")
    lease = servers.api.registry.get(resources.LEASES, "aliquot-system", "aliquot-server").obj
    assert not lease["spec"].get("holderIdentity")
    assert "could not take over" in leadership.no_holder()
    is_broken.clear()
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)
    assert leadership.no_holder() == ""


async def test_a_server_that_leads_no_more_charges_what_its_successor_wrote_on_a_pod_for_which_it_kept_a_part(
    servers: Servers,
) -> None:
    """A record on such a pod is its user's only as long as nobody else may write one."""
    first = await servers.start("first")
    await first.leads()
    container = container_manifest(gpu_mem=None, resources={"limits": {"aliquot.io/gpu": "1"}})
    servers.api.registry.create(resources.PODS, "default", pod_manifest(containers=[container]))
    first.plane.reservations.reserve(await pod_of(first), "n1", 30)
    second = await servers.start("second")
    await until(lambda: second.role() is Role.LEADING, passing=second.clock, between_calls_of=servers.api)
    await second.plane.committer.commit(await pod_of(second), "n1")
    await until(lambda: first.role() is Role.FOLLOWING, "it hears of the new term")
    uid = servers.stored()["metadata"]["uid"]
    await until(lambda: first.plane.cluster.ledger.nodes_of(uid), "it charges the pod")
    await until(lambda: first.plane.cluster.is_settled(uid, "n1"), "it knows the pod bound")
    assert first.plane.cluster.unplaced == {}

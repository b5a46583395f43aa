"""With the rights of an original's account the server runs alone, and says what is missing and what is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from aliquot.control import ControlPlane, Role
from aliquot.control.admission import manifests
from aliquot.dialects import standard_dialects
from aliquot.embedded.api import resources
from aliquot.endpoints import health
from aliquot.endpoints.asgi import Call
from aliquot.errors import NotLeading
from aliquot.kube import Access, Client
from aliquot.model.records import EPOCH, PLACEMENT
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import Embedded, FakeClock, ScriptedApi, until
from tests.integration.room import patient


def rule(group: str, names: Sequence[str], *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(names), "verbs": list(verbs)}


ORIGINAL = [
    rule("", ["nodes", "pods"], "get", "list", "watch"),
    rule("", ["pods/binding", "bindings"], "create"),
    rule("", ["pods"], "patch", "update"),
    rule("", ["events"], "create", "patch"),
]
"""What gpushare's extender has, as far as it matters here."""
NO_HELPING = ORIGINAL[:2]
ACCOUNT = "system:serviceaccount:kube-system:original"
REPLICAS = [
    rule("coordination.k8s.io", ["leases"], "get", "create", "patch"),
    rule("", ["configmaps"], "get", "create", "patch"),
]


@pytest.fixture
def embedded() -> Embedded:
    """The one API server here with users of the test's own making."""
    return Embedded()


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        yield running


@pytest.fixture
async def started(
    embedded: Embedded, scripted: ScriptedApi, clock: FakeClock, request: pytest.FixtureRequest
) -> AsyncIterator[ControlPlane]:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "aliquot-system"}})
    scripted.registry.create(resources.NODES, "", node_manifest("n1", make_cards("n1")))
    embedded.cluster.users.add(ACCOUNT, token="secret", rules=request.param)
    async with Client(Access(scripted.url, token="secret")) as client:
        plane = ControlPlane(client, clock, settings=patient())
        task = asyncio.create_task(plane.run())
        await until(lambda: not plane.not_ready(), "it is ready")
        yield plane
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("started", [ORIGINAL], indirect=True)
async def test_an_originals_account_is_enough_to_place_pods(started: ControlPlane, scripted: ScriptedApi) -> None:
    assert started.leadership.role is Role.ALONE
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    await until(lambda: started.pods.get("default/p") is not None)
    pod = started.pods.get("default/p")
    assert pod is not None
    assert not (await started.committer.commit(pod, "n1")).already
    stored = scripted.store.get("pods", ("default", "p"))
    assert stored is not None
    assert PLACEMENT in stored.obj["metadata"]["annotations"]
    assert EPOCH not in stored.obj["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        pytest.param(ORIGINAL, "may not get leases in namespace aliquot-system: this server runs alone", id="no Lease"),
        pytest.param(
            ORIGINAL,
            "This server runs alone, without Lease and epoch; run one replica, with strategy Recreate",
            id="alone",
        ),
        pytest.param(ORIGINAL, "the server cannot notice silent agents, and knows no load: leases", id="no agents"),
        pytest.param(ORIGINAL + REPLICAS[:1], "may not create configmaps in namespace aliquot-system", id="no epoch"),
        pytest.param(
            NO_HELPING + REPLICAS, "may not patch pods: pods that another scheduler bound", id="no late patch"
        ),
        pytest.param(
            NO_HELPING + REPLICAS, "may not create events: pods have no events that say why they wait", id="no events"
        ),
    ],
    indirect=["started"],
)
async def test_readyz_says_which_right_is_missing_and_what_is_lost(started: ControlPlane, expected: str) -> None:
    answered = await health.routes(started)["GET", "/readyz"](Call())
    assert answered.status == 200
    assert expected in answered.body.decode()


@pytest.mark.parametrize("started", [ORIGINAL], indirect=True)
async def test_rights_that_come_later_end_the_loneliness(
    started: ControlPlane, embedded: Embedded, clock: FakeClock, scripted: ScriptedApi
) -> None:
    embedded.cluster.users.add(ACCOUNT, token="secret", rules=ORIGINAL + REPLICAS)
    await until(lambda: started.leadership.role is Role.LEADING, passing=clock, between_calls_of=scripted)


@pytest.mark.parametrize("started", [ORIGINAL], indirect=True)
async def test_a_server_that_is_alone_on_a_cluster_with_policies_says_that_it_can_commit_nothing(
    started: ControlPlane, scripted: ScriptedApi
) -> None:
    for manifest in manifests(standard_dialects()):
        is_policy = manifest["kind"] == "ValidatingAdmissionPolicy"
        scripted.registry.create(resources.POLICIES if is_policy else resources.POLICY_BINDINGS, "", manifest)
    epoch = {"metadata": {"name": "aliquot-epoch"}, "data": {"epoch": "7"}}
    scripted.registry.create(resources.CONFIG_MAPS, "aliquot-system", epoch)
    scripted.registry.create(resources.PODS, "default", pod_manifest())
    await until(lambda: started.pods.get("default/p") is not None)
    pod = started.pods.get("default/p")
    assert pod is not None
    with pytest.raises(NotLeading):
        await started.committer.commit(pod, "n1")
    (why,) = started.not_ready()
    assert why.startswith("the API server accepts a placement only with the epoch of a term")


@pytest.mark.parametrize("started", [NO_HELPING + REPLICAS], indirect=True)
async def test_without_the_smaller_rights_it_leads_all_the_same(started: ControlPlane) -> None:
    await until(lambda: started.leadership.role is Role.LEADING)


@pytest.mark.parametrize("started", [ORIGINAL], indirect=True)
async def test_the_rule_to_add_is_told(started: ControlPlane) -> None:
    told = '; the rule to add: - {apiGroups: ["coordination.k8s.io"], resources: [leases], verbs: [create]}'
    assert any(note.endswith(told) for note in started.notes())

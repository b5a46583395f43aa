"""When the embedded server's policies count, what they read, and what happens without it."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from aliquot.control.admission import NAMESPACE, STALE_EPOCH
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.model.admission import EPOCH_MAP, FENCING, FORGERY, PARAMETERS, WRITERS_MAP
from aliquot.model.records import EPOCH
from tests.fakes import FakeClock, until
from tests.integration.policies.attempt import attempt, binding
from tests.integration.policies.caller import MERGE, Answer, Caller
from tests.integration.policies.cases import GPUSHARE, INDEX, PLACED, SERVER, USER, Case, Outcome, Way, limits
from tests.integration.policies.conftest import guard

PODS = "/api/v1/namespaces/default/pods"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
FORGED = Case(Way.PATCH, Outcome.FORGED, {INDEX: "0"}, limits=limits(GPUSHARE))


def remove(cluster: EmbeddedCluster, resource: resources.WritableResource, namespace: str, name: str) -> None:
    cluster.registry.delete(resource, namespace, name, DeleteRequest())


async def bind_nothing(caller: Caller, epoch: str) -> Answer:
    """A Binding that comes to nothing, as a new leader sends it to learn whether its term has begun."""
    body = binding("nobody", annotations={**PLACED, EPOCH: epoch})
    return await caller.send("POST", f"{PODS}/nobody/binding", body, user=SERVER, dry_run=True)


@pytest.mark.usefixtures("cluster")
async def test_without_policies_everybody_writes_everything(caller: Caller) -> None:
    (await attempt(caller, FORGED, "default", "web")).expect(200)


async def test_a_policy_does_nothing_without_its_binding(guarded: EmbeddedCluster, caller: Caller) -> None:
    remove(guarded, resources.POLICY_BINDINGS, "", FORGERY)
    (await attempt(caller, FORGED, "default", "web")).expect(200)


async def test_warn_lets_pass_and_says_so(cluster: EmbeddedCluster, caller: Caller) -> None:
    guard(cluster, "Warn,Audit")
    with capture_logs() as logs:
        answer = await attempt(caller, FORGED, "default", "web")
    assert answer.expect(200)["metadata"]["annotations"] == {INDEX: "0"}
    told = (
        f"{USER} may not write {INDEX}: only Aliquot decides where a pod is placed and how large its part is; "
        f"leave it out, or list the account in ConfigMap {NAMESPACE}/{WRITERS_MAP}"
    )
    head = f"Validation failed for ValidatingAdmissionPolicy '{FORGERY}' with binding '{FORGERY}'"
    assert answer.warnings == [f'299 - "{head}: {told}"']
    assert [(log["policy"], log["user"], log["object"], log["why"]) for log in logs] == [(FORGERY, USER, "web", told)]


@pytest.mark.usefixtures("guarded")
async def test_a_new_leader_sees_when_its_term_begins(caller: Caller) -> None:
    refused = await bind_nothing(caller, "8")
    assert refused.code == 422
    assert STALE_EPOCH in refused.message
    assert refused.message == (
        f"pods \"nobody\" is forbidden: ValidatingAdmissionPolicy '{FENCING}' with binding '{FENCING}' denied request: "
        "epoch '8' is not that of the current term, '7'"
    )
    body = {"data": {"epoch": "8"}}
    (await caller.send("PATCH", f"{MAPS}/{EPOCH_MAP}", body, media=MERGE)).expect(200)
    (await bind_nothing(caller, "8")).expect(404)
    assert STALE_EPOCH in (await bind_nothing(caller, "7")).message


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="no data, as it is installed"),
        pytest.param({}, id="no key"),
        pytest.param({"epoch": ""}, id="an empty key"),
    ],
)
async def test_before_the_first_term_nothing_is_placed(caller: Caller, data: dict[str, str] | None) -> None:
    (await caller.send("PATCH", f"{MAPS}/{EPOCH_MAP}", {"data": None}, media=MERGE)).expect(200)
    (await caller.send("PATCH", f"{MAPS}/{EPOCH_MAP}", {"data": data}, media=MERGE)).expect(200)
    for epoch in ("", "0", "7"):
        assert STALE_EPOCH in (await bind_nothing(caller, epoch)).message
    (await attempt(caller, Case(Way.BINDING, Outcome.WRITTEN, {}), "default", "plain")).expect(201)


async def test_without_the_epoch_pods_are_changed_as_if_nothing_fenced_them(
    guarded: EmbeddedCluster, caller: Caller
) -> None:
    """A real API server looks for the parameter before it looks at the change: to refuse here would stop kubelet."""
    remove(guarded, resources.CONFIG_MAPS, NAMESPACE, EPOCH_MAP)
    for epoch in ("7", "0"):
        assert (await bind_nothing(caller, epoch)).code == 404
    (await attempt(caller, Case(Way.PATCH, Outcome.WRITTEN, {"team": "a"}), "default", "web")).expect(200)


async def test_without_the_list_of_writers_nobody_is_refused(guarded: EmbeddedCluster, caller: Caller) -> None:
    remove(guarded, resources.CONFIG_MAPS, NAMESPACE, WRITERS_MAP)
    (await attempt(caller, FORGED, "default", "web")).expect(200)


@pytest.mark.parametrize("name", [EPOCH_MAP, WRITERS_MAP])
async def test_what_the_policies_read_is_not_deleted(guarded: EmbeddedCluster, caller: Caller, name: str) -> None:
    for path in (f"{MAPS}/{name}", MAPS):
        refused = await caller.send("DELETE", path)
        assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
        assert "delete the policies and their bindings first" in refused.message
    namesake = {"metadata": {"name": name}}
    guarded.registry.create(resources.CONFIG_MAPS, "default", namesake)
    (await caller.send("DELETE", f"/api/v1/namespaces/default/configmaps/{name}")).expect(200)


async def test_a_namespace_stays_with_what_the_policies_read_until_they_are_gone(
    guarded: EmbeddedCluster, caller: Caller
) -> None:
    """Policies are asked of whatever empties it, too."""
    home = f"/api/v1/namespaces/{NAMESPACE}"
    (await caller.send("POST", MAPS, {"metadata": {"name": "plain"}})).expect(201)
    ending = (await caller.send("DELETE", home)).expect(200)
    assert ending["status"]["phase"] == "Terminating"
    left = (await caller.send("GET", MAPS)).expect(200)["items"]
    assert [held["metadata"]["name"] for held in left] == [EPOCH_MAP, WRITERS_MAP]
    assert (await caller.send("GET", home)).expect(200)["status"]["phase"] == "Terminating"
    assert STALE_EPOCH in (await bind_nothing(caller, "8")).message
    remove(guarded, resources.POLICY_BINDINGS, "", PARAMETERS)
    (await caller.send("DELETE", home)).expect(200)
    (await caller.send("GET", home)).expect(404)


async def test_a_namespace_goes_by_itself_when_no_policy_keeps_it_any_more() -> None:
    clock, namespaces = FakeClock(), resources.NAMESPACES
    async with EmbeddedCluster(timer=clock) as cluster:
        cluster.registry.create(namespaces, "", {"metadata": {"name": NAMESPACE}})
        guard(cluster)
        remove(cluster, namespaces, "", NAMESPACE)
        await until(lambda: clock.sleeping, "it is tried again later")
        remove(cluster, resources.POLICY_BINDINGS, "", PARAMETERS)
        gone = "the namespace is gone"
        await until(lambda: not cluster.store.get(namespaces.collection, ("", NAMESPACE)), gone, passing=clock)


@pytest.mark.usefixtures("guarded")
async def test_a_dependent_that_a_policy_keeps_outlives_its_owner(caller: Caller) -> None:
    owner = (await caller.send("POST", MAPS, {"metadata": {"name": "owner"}})).expect(201)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    body = {"metadata": {"ownerReferences": [reference]}}
    (await caller.send("PATCH", f"{MAPS}/{EPOCH_MAP}", body, media=MERGE)).expect(200)
    (await caller.send("DELETE", f"{MAPS}/owner")).expect(200)
    (await caller.send("GET", f"{MAPS}/owner")).expect(404)
    (await caller.send("GET", f"{MAPS}/{EPOCH_MAP}")).expect(200)


@pytest.mark.usefixtures("guarded")
async def test_they_can_be_deleted_after_the_policies(caller: Caller) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        selector = "labelSelector=app.kubernetes.io%2Fpart-of%3Daliquot"
        (await caller.send("DELETE", f"{group}/{kind}?{selector}")).expect(200)
        assert (await caller.send("GET", f"{group}/{kind}")).expect(200)["items"] == []
    (await caller.send("DELETE", MAPS)).expect(200)


async def test_a_policy_by_another_name_is_stored_and_never_asked(guarded: EmbeddedCluster, caller: Caller) -> None:
    stored: Any = guarded.registry.get(resources.POLICIES, "", FORGERY).obj
    for name in (FORGERY, FENCING):
        remove(guarded, resources.POLICIES, "", name)
    other = {"metadata": {"name": "theirs"}, "spec": stored["spec"]}
    guarded.registry.create(resources.POLICIES, "", other)
    (await attempt(caller, FORGED, "default", "web")).expect(200)


@pytest.mark.usefixtures("guarded")
async def test_a_policy_that_cannot_be_read_refuses(caller: Caller) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{FORGERY}"
    (await caller.send("PATCH", path, {"spec": {"variables": []}}, media=MERGE)).expect(200)
    refused = await attempt(caller, FORGED, "default", "web")
    assert "expression cannot be evaluated: variable lists is not as Aliquot writes it" in refused.message

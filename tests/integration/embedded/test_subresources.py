"""Binding, eviction, status and log."""

from typing import Any

import pytest

from aliquot.embedded.api.subresources import log_part
from tests.integration.embedded.client import NODES, PODS, Api, binding, pod


async def test_a_binding_puts_node_and_annotations_into_the_pod_in_one_write(api: Api) -> None:
    body = pod(labels={"app": "web"})
    body["metadata"]["annotations"] = {"kept": "1", "changed": "1"}
    before = (await api.post(PODS, body)).expect(201)
    asked = binding(annotations={"changed": "2", "new": "3"}, labels={"zone": "a"}, uid=before["metadata"]["uid"])
    assert (await api.post(f"{PODS}/web/binding", asked)).expect(201)["status"] == "Success"
    after = (await api.get(f"{PODS}/web")).expect(200)
    assert after["spec"]["nodeName"] == "node-1"
    assert after["metadata"]["annotations"] == {"kept": "1", "changed": "2", "new": "3"}
    assert after["metadata"]["labels"] == {"app": "web", "zone": "a"}
    (condition,) = after["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]
    one_later = int(before["metadata"]["resourceVersion"]) + 1
    assert after["metadata"]["resourceVersion"] == str(one_later)


async def test_a_binding_replaces_the_condition_and_the_nomination(api: Api) -> None:
    await api.post(PODS, pod())
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"conditions": [unschedulable], "nominatedNodeName": "node-2"}
    await api.patch(f"{PODS}/web/status", {"status": status})
    await api.post(f"{PODS}/web/binding", binding())
    after = (await api.get(f"{PODS}/web")).expect(200)["status"]
    assert [condition["status"] for condition in after["conditions"]] == ["True"]
    assert "nominatedNodeName" not in after


async def test_the_namespaced_resource_binds_too(api: Api) -> None:
    await api.post(PODS, pod())
    (await api.post(PODS.replace("pods", "bindings"), binding())).expect(201)
    assert (await api.get(f"{PODS}/web")).expect(200)["spec"]["nodeName"] == "node-1"


async def test_a_pod_is_bound_once(api: Api) -> None:
    await api.post(PODS, pod())
    await api.post(f"{PODS}/web/binding", binding())
    message = (await api.post(f"{PODS}/web/binding", binding(node="node-2"))).refused(409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "node-1"'
    )


async def test_another_incarnation_is_not_bound(api: Api) -> None:
    await api.post(PODS, pod())
    message = (await api.post(f"{PODS}/web/binding", binding(uid="gone"))).refused(409, "Conflict")
    assert "Precondition failed: UID in precondition: gone" in message
    stale = await api.post(f"{PODS}/web/binding", binding(resourceVersion="1"))
    stale.refused(409, "Conflict")


async def test_a_leaving_pod_is_not_bound(api: Api) -> None:
    body = pod()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(PODS, body)
    await api.delete(f"{PODS}/web")
    message = (await api.post(f"{PODS}/web/binding", binding())).refused(409, "Conflict")
    assert "pod web is being deleted, cannot be assigned to a host" in message


async def test_a_gated_pod_is_not_bound(api: Api) -> None:
    await api.post(PODS, pod(schedulingGates=[{"name": "wait"}]))
    assert "schedulingGates" in (await api.post(f"{PODS}/web/binding", binding())).refused(409, "Conflict")


async def test_a_dry_binding_binds_nothing(api: Api) -> None:
    assert "not found" in (await api.post(f"{PODS}/web/binding", binding(), dryRun="All")).refused(404, "NotFound")
    await api.post(PODS, pod())
    (await api.post(f"{PODS}/web/binding", binding(), dryRun="All")).expect(201)
    assert "nodeName" not in (await api.get(f"{PODS}/web")).expect(200)["spec"]


BAD_BINDINGS: list[tuple[str, dict[str, Any], int, str]] = [
    ("another name", binding("other"), 400, "BadRequest"),
    ("another namespace", binding(namespace="other"), 400, "BadRequest"),
    ("another kind", {**binding(), "kind": "Pod"}, 400, "BadRequest"),
    ("annotations that are no texts", binding(annotations={"a": 1}), 400, "BadRequest"),
    ("no target", {**binding(), "target": None}, 500, ""),
    ("a target without a name", {**binding(), "target": {"kind": "Node"}}, 500, ""),
    ("a target that is no node", {**binding(), "target": {"kind": "Pod", "name": "x"}}, 500, ""),
]


@pytest.mark.parametrize(
    ("body", "code", "reason"), [case[1:] for case in BAD_BINDINGS], ids=[case[0] for case in BAD_BINDINGS]
)
async def test_bad_bindings(api: Api, body: dict[str, Any], code: int, reason: str) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    (await api.post(f"{PODS}/web/binding", body)).refused(code, reason)
    assert (await api.get(f"{PODS}/web")).expect(200) == created


async def test_the_status_changes_only_through_its_subresource(api: Api) -> None:
    await api.post(PODS, pod())
    running = {"phase": "Running", "podIPs": [{"ip": "10.1.0.1"}]}
    through_pod = (await api.patch(f"{PODS}/web", {"status": running})).expect(200)
    assert through_pod["status"]["phase"] == "Pending"
    patch = {"status": running, "spec": {"nodeName": "node-1"}, "metadata": {"labels": {"a": "b"}}}
    through_status = (await api.patch(f"{PODS}/web/status", patch)).expect(200)
    assert through_status["status"]["phase"] == "Running"
    assert through_status["metadata"]["labels"] == {"a": "b"}
    assert "nodeName" not in through_status["spec"]
    assert (await api.get(f"{PODS}/web/status")).expect(200) == through_status


async def test_conditions_of_nodes_merge_by_type(api: Api) -> None:
    await api.post(NODES, {"metadata": {"name": "node-1"}, "status": {"conditions": []}})
    path, kind = f"{NODES}/node-1/status", "strategic-merge-patch+json"
    for condition in ({"type": "Ready", "status": "False"}, {"type": "Disk", "status": "False"}):
        await api.patch(path, {"status": {"conditions": [condition]}}, kind)
    ready = {"type": "Ready", "status": "True"}
    after = (await api.patch(path, {"status": {"conditions": [ready]}}, kind)).expect(200)
    found = [(condition["type"], condition["status"]) for condition in after["status"]["conditions"]]
    assert found == [("Disk", "False"), ("Ready", "True")]


async def test_a_status_is_replaced_as_a_whole(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    created["status"] = {"phase": "Failed", "reason": "AliquotNoRoom"}
    after = (await api.put(f"{PODS}/web/status", created)).expect(200)
    assert after["status"] == {"phase": "Failed", "reason": "AliquotNoRoom", "qosClass": "BestEffort"}


async def test_an_eviction_deletes_with_grace(api: Api) -> None:
    await api.post(PODS, pod(nodeName="node-1"))
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "web"}}
    (await api.post(f"{PODS}/web/eviction", eviction)).expect(201)
    assert (await api.get(f"{PODS}/web")).expect(200)["metadata"]["deletionGracePeriodSeconds"] == 30
    quick = {**eviction, "deleteOptions": {"gracePeriodSeconds": 0}}
    (await api.post(f"{PODS}/web/eviction", quick)).expect(201)
    (await api.post(f"{PODS}/web/eviction", eviction)).refused(404, "NotFound")


@pytest.mark.embedded_only("a real pod has a process")
@pytest.mark.parametrize("action", ["attach", "exec", "portforward"])
async def test_what_needs_a_process_says_that_there_is_none(api: Api, action: str) -> None:
    (await api.get(f"{PODS}/web/{action}")).refused(404, "NotFound")
    (await api.post(PODS, pod())).expect(201)
    for answer in (await api.get(f"{PODS}/web/{action}"), await api.post(f"{PODS}/web/{action}", {})):
        assert f"{action} is not possible: pods of the embedded" in answer.refused(501, "NotImplemented")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"tailLines": "2"}, "two\nthree\n"),
        ({"tailLines": "0"}, ""),
        ({"tailLines": "9"}, "one\ntwo\nthree\n"),
        ({"limitBytes": "5"}, "one\nt"),
        ({"tailLines": "1", "limitBytes": "2"}, "th"),
    ],
)
def test_a_log_is_shown_as_far_as_it_is_wanted(query: dict[str, str], shown: str) -> None:
    assert log_part("one\ntwo\nthree\n", query) == shown


@pytest.mark.embedded_only("a real server asks the kubelet")
async def test_the_log_says_that_there_is_none(api: Api) -> None:
    (await api.get(f"{PODS}/web/log")).refused(404, "NotFound")
    await api.post(PODS, pod())
    answer = await api.get(f"{PODS}/web/log")
    assert answer.media.startswith("text/plain")
    assert b"no logs" in answer.expect(200)


async def test_everybody_may_do_everything(api: Api) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.post(path, review)).expect(201)["status"] == {"allowed": True}

"""How pods, objects with finalizers and namespaces leave."""

from datetime import datetime, timedelta

import pytest

from tests.integration.embedded.client import CONFIG_MAPS, PODS, Api, config_map, names, pod

NAMESPACES = "/api/v1/namespaces"


async def test_an_unbound_pod_goes_at_once(api: Api) -> None:
    await api.post(PODS, pod())
    assert (await api.delete(f"{PODS}/web")).expect(200)["kind"] == "Pod"
    assert (await api.get(f"{PODS}/web")).refused(404, "NotFound") == 'pods "web" not found'


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    await api.post(PODS, pod(nodeName="node-1"))
    leaving = (await api.delete(f"{PODS}/web")).expect(200)["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 30
    assert datetime.fromisoformat(leaving["deletionTimestamp"]) - datetime.fromisoformat(
        leaving["creationTimestamp"]
    ) >= timedelta(seconds=30)
    assert leaving["generation"] == 2
    assert (await api.get(f"{PODS}/web")).expect(200)["metadata"] == leaving
    (await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 0})).expect(200)
    (await api.get(f"{PODS}/web")).refused(404, "NotFound")


@pytest.mark.parametrize(
    ("first", "second", "left"), [("30", "10", 10), ("10", "30", 10), ("10", "10", 10), ("5", "1", 1)]
)
async def test_a_second_deletion_may_only_shorten(api: Api, first: str, second: str, left: int) -> None:
    await api.post(PODS, pod(nodeName="node-1"))
    await api.delete(f"{PODS}/web", gracePeriodSeconds=first)
    leaving = (await api.delete(f"{PODS}/web", gracePeriodSeconds=second)).expect(200)
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == left


async def test_a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    await api.post(PODS, pod(nodeName="node-1"))
    await api.patch(f"{PODS}/web/status", {"status": {"phase": "Succeeded"}})
    await api.delete(f"{PODS}/web")
    (await api.get(f"{PODS}/web")).refused(404, "NotFound")


async def test_finalizers_hold_an_object(api: Api) -> None:
    body = config_map()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(CONFIG_MAPS, body)
    held = (await api.delete(f"{CONFIG_MAPS}/settings")).expect(200)
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    assert "no new finalizers" in (await api.patch(f"{CONFIG_MAPS}/settings", more)).refused(422, "Invalid")
    (await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"finalizers": None}})).expect(200)
    (await api.get(f"{CONFIG_MAPS}/settings")).refused(404, "NotFound")


async def test_finalizers_hold_a_pod_after_its_kubelet(api: Api) -> None:
    body = pod(nodeName="node-1")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(PODS, body)
    await api.delete(f"{PODS}/web")
    await api.delete(f"{PODS}/web", gracePeriodSeconds="0")
    assert (await api.get(f"{PODS}/web")).expect(200)["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(f"{PODS}/web", {"metadata": {"finalizers": []}})
    (await api.get(f"{PODS}/web")).refused(404, "NotFound")


async def test_a_deletion_mark_cannot_be_taken_back(api: Api) -> None:
    await api.post(PODS, pod(nodeName="node-1"))
    leaving = (await api.delete(f"{PODS}/web")).expect(200)
    patch = {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
    assert (await api.patch(f"{PODS}/web", patch)).expect(200) == leaving


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_preconditions_of_a_deletion(api: Api, precondition: dict[str, str]) -> None:
    await api.post(PODS, pod())
    (await api.delete(f"{PODS}/web", {"preconditions": precondition})).refused(409, "Conflict")
    (await api.get(f"{PODS}/web")).expect(200)


async def test_other_resources_answer_a_status(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map())).expect(201)
    answer = (await api.delete(f"{CONFIG_MAPS}/settings")).expect(200)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "settings", "kind": "configmaps", "uid": created["metadata"]["uid"]}


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    await api.post(PODS, pod("a", labels={"app": "x"}))
    await api.post(PODS, pod("b", labels={"app": "y"}))
    deleted = (await api.delete(PODS, labelSelector="app=x")).expect(200)
    assert names(deleted) == ["a"]
    assert names((await api.get(PODS)).expect(200)) == ["b"]


@pytest.mark.embedded_only("kube-controller-manager does it in a real cluster")
async def test_a_namespace_is_emptied_before_it_goes(api: Api) -> None:
    await api.post(NAMESPACES, {"metadata": {"name": "team"}})
    pods = f"{NAMESPACES}/team/pods"
    await api.post(f"{NAMESPACES}/team/configmaps", config_map())
    await api.post(pods, pod(nodeName="node-1"))
    ending = (await api.delete(f"{NAMESPACES}/team")).expect(200)
    assert ending["status"]["phase"] == "Terminating"
    assert "being terminated" in (await api.post(pods, pod("new"))).refused(403, "Forbidden")
    assert names((await api.get(f"{NAMESPACES}/team/configmaps")).expect(200)) == []
    await api.delete(f"{pods}/web", gracePeriodSeconds="0")
    (await api.get(f"{NAMESPACES}/team")).refused(404, "NotFound")


@pytest.mark.embedded_only("kube-controller-manager does it in a real cluster")
async def test_an_empty_namespace_goes_at_once(api: Api) -> None:
    await api.post(NAMESPACES, {"metadata": {"name": "team"}})
    (await api.delete(f"{NAMESPACES}/team", dryRun="All")).expect(200)
    (await api.get(f"{NAMESPACES}/team")).expect(200)
    (await api.delete(f"{NAMESPACES}/team")).expect(200)
    (await api.get(f"{NAMESPACES}/team")).refused(404, "NotFound")


async def test_the_default_namespace_stays(api: Api) -> None:
    (await api.delete(f"{NAMESPACES}/default")).refused(403, "Forbidden")

"""Lists: their form, selectors, pages, and resourceVersion semantics."""

import pytest

from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.resources import CONFIG_MAPS as CONFIG_MAPS_RESOURCE
from tests.integration.embedded.client import CONFIG_MAPS, PODS, Api, config_map, names, pod


async def test_items_of_a_list_do_not_repeat_their_kind(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    listed = (await api.get(PODS)).expect(200)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    del created["kind"], created["apiVersion"]
    assert listed["items"] == [created]


async def test_one_namespace_or_all(api: Api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.post(PODS, pod("b"))
    await api.post(PODS, pod("a"))
    await api.post(PODS.replace("default", "team"), pod("c"))
    assert names((await api.get(PODS)).expect(200)) == ["a", "b"]
    assert names((await api.get("/api/v1/pods")).expect(200)) == ["a", "b", "c"]
    assert names((await api.get("/api/v1/namespaces/nowhere/pods")).expect(200)) == []


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", ["one", "three", "two"]),
        ("app=web", ["one"]),
        ("app==web", ["one"]),
        ("app!=web", ["three", "two"]),
        ("app", ["one", "two"]),
        ("!app", ["three"]),
        ("app in (web, db)", ["one", "two"]),
        ("app notin (web)", ["three", "two"]),
        ("app in (web,db),size>1", ["two"]),
        ("size<2", ["one"]),
        ("example.com/zone=a", ["two"]),
        ("app=web,app=db", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, found: list[str]) -> None:
    await api.post(PODS, pod("one", labels={"app": "web", "size": "1"}))
    await api.post(PODS, pod("two", labels={"app": "db", "size": "2", "example.com/zone": "a"}))
    await api.post(PODS, pod("three", labels={"size": "big"}))
    assert names((await api.get(PODS, labelSelector=selector)).expect(200)) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=one", ["one"]),
        ("metadata.name!=one", ["two"]),
        ("metadata.namespace=default", ["one", "two"]),
        ("spec.nodeName=", ["one"]),
        ("spec.nodeName!=", ["two"]),
        ("spec.nodeName=node-1,status.phase!=Failed,status.phase!=Succeeded", ["two"]),
        ("spec.schedulerName==gpu-scheduler", ["two"]),
        ("status.phase=Running", []),
    ],
)
async def test_field_selectors_of_pods(api: Api, selector: str, found: list[str]) -> None:
    await api.post(PODS, pod("one"))
    await api.post(PODS, pod("two", nodeName="node-1", schedulerName="gpu-scheduler"))
    assert names((await api.get(PODS, fieldSelector=selector)).expect(200)) == found


async def test_field_selectors_of_events_and_nodes(api: Api) -> None:
    events = PODS.replace("pods", "events")
    for name in ("a", "b"):
        involved = {"kind": "Pod", "name": name, "namespace": "default", "uid": f"uid-{name}"}
        await api.post(events, {"metadata": {"name": f"{name}.1"}, "involvedObject": involved, "type": "Normal"})
    selector = "involvedObject.kind=Pod,involvedObject.namespace=default,involvedObject.uid=uid-b"
    assert names((await api.get(events, fieldSelector=selector)).expect(200)) == ["b.1"]
    await api.post("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"unschedulable": True}})
    found = (await api.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true")).expect(200)
    assert names(found) == ["n"]


async def fill(api: Api, count: int) -> None:
    for number in range(count):
        await api.post(CONFIG_MAPS, config_map(f"c{number}"))


async def test_pages_show_one_moment(api: Api) -> None:
    await fill(api, 5)
    first = (await api.get(CONFIG_MAPS, limit="2")).expect(200)
    assert names(first) == ["c0", "c1"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.post(CONFIG_MAPS, config_map("c2a"))
    await api.delete(f"{CONFIG_MAPS}/c3")
    await api.patch(f"{CONFIG_MAPS}/c4", {"data": {"late": "yes"}})
    second = (await api.get(CONFIG_MAPS, limit="2", **{"continue": first["metadata"]["continue"]})).expect(200)
    assert names(second) == ["c2", "c3"]
    assert second["metadata"]["remainingItemCount"] == 1
    last = (await api.get(CONFIG_MAPS, limit="2", **{"continue": second["metadata"]["continue"]})).expect(200)
    assert names(last) == ["c4"]
    assert "late" not in last["items"][0].get("data", {})
    assert "continue" not in last["metadata"]
    assert last["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names((await api.get(CONFIG_MAPS)).expect(200)) == ["c0", "c1", "c2", "c2a", "c4"]


async def test_what_remains_is_not_counted_with_a_selector(api: Api) -> None:
    await fill(api, 3)
    page = (await api.get(CONFIG_MAPS, limit="1", fieldSelector="metadata.name!=c0")).expect(200)
    assert names(page) == ["c1"]
    assert "remainingItemCount" not in page["metadata"]
    rest = await api.get(CONFIG_MAPS, fieldSelector="metadata.name!=c0", **{"continue": page["metadata"]["continue"]})
    assert names(rest.expect(200)) == ["c2"]


@pytest.mark.embedded_only("a real server remembers for five minutes")
async def test_an_old_page_expires(api: Api, cluster: EmbeddedCluster) -> None:
    await fill(api, 3)
    page = (await api.get(CONFIG_MAPS, limit="1")).expect(200)
    for number in range(65):
        cluster.registry.create(CONFIG_MAPS_RESOURCE, "default", config_map(f"later{number}"))
    answer = await api.get(CONFIG_MAPS, limit="1", **{"continue": page["metadata"]["continue"]})
    assert "continue parameter is too old" in answer.refused(410, "Expired")


async def test_resource_versions_of_lists(api: Api) -> None:
    await fill(api, 1)
    old = (await api.get(CONFIG_MAPS)).expect(200)["metadata"]["resourceVersion"]
    await api.post(CONFIG_MAPS, config_map("new"))
    exact = await api.get(CONFIG_MAPS, resourceVersion=old, resourceVersionMatch="Exact")
    assert names(exact.expect(200)) == ["c0"]
    for version in ("", "0", old):
        assert names((await api.get(CONFIG_MAPS, resourceVersion=version)).expect(200)) == ["c0", "new"]
    future = await api.get(CONFIG_MAPS, resourceVersion="999999")
    assert "Too large resource version" in future.refused(504, "Timeout")
    assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

"""Creating, reading, replacing: identity, versions and conflicts."""

import re

import pytest

from tests.integration.embedded.client import CONFIG_MAPS, LEASES, NODES, PODS, Api, config_map, names, pod

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


async def test_a_created_object_gets_its_identity(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map(a="1"))).expect(201)
    assert created["metadata"]["namespace"] == "default"
    assert MOMENT.fullmatch(created["metadata"]["creationTimestamp"])
    assert len(created["metadata"]["uid"]) == 36
    assert int(created["metadata"]["resourceVersion"]) > 0
    assert (await api.get(f"{CONFIG_MAPS}/settings")).expect(200) == created


async def test_names_are_generated(api: Api) -> None:
    body = {"metadata": {"generateName": "job-"}, "data": {}}
    first = (await api.post(CONFIG_MAPS, body)).expect(201)["metadata"]["name"]
    second = (await api.post(CONFIG_MAPS, body)).expect(201)["metadata"]["name"]
    assert first.startswith("job-")
    assert len(first) == len("job-") + 5
    assert first != second


async def test_the_same_name_twice_already_exists(api: Api) -> None:
    await api.post(PODS, pod())
    answer = await api.post(PODS, pod())
    assert answer.refused(409, "AlreadyExists") == 'pods "web" already exists'
    assert answer.body["details"] == {"name": "web", "kind": "pods"}


async def test_a_replacement_based_on_an_old_version_conflicts(api: Api) -> None:
    old = (await api.post(CONFIG_MAPS, config_map(a="1"))).expect(201)
    new = (await api.put(f"{CONFIG_MAPS}/settings", {**old, "data": {"a": "2"}})).expect(200)
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    message = (await api.put(f"{CONFIG_MAPS}/settings", old)).refused(409, "Conflict")
    assert message == (
        'Operation cannot be fulfilled on configmaps "settings": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_a_replacement_without_a_version_is_unconditional(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map(a="1"))
    replaced = (await api.put(f"{CONFIG_MAPS}/settings", config_map(a="2"))).expect(200)
    assert replaced["data"] == {"a": "2"}


async def test_a_replacement_of_another_incarnation_conflicts(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map())).expect(201)
    created["metadata"]["uid"] = "another"
    del created["metadata"]["resourceVersion"]
    assert "UID in precondition: another" in (await api.put(f"{CONFIG_MAPS}/settings", created)).refused(
        409, "Conflict"
    )


async def test_an_update_that_changes_nothing_keeps_the_version(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    assert (await api.put(f"{PODS}/web", created)).expect(200) == created
    assert (await api.patch(f"{PODS}/web", {"metadata": {"labels": None}})).expect(200) == created


async def test_leases_must_name_their_version_and_may_be_created_by_put(api: Api) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    created = (await api.put(f"{LEASES}/leader", lease)).expect(201)
    message = (await api.put(f"{LEASES}/leader", lease)).refused(422, "Invalid")
    assert "metadata.resourceVersion" in message
    created["spec"]["holderIdentity"] = "b"
    assert (await api.put(f"{LEASES}/leader", created)).expect(200)["spec"]["holderIdentity"] == "b"


async def test_spec_changes_of_pods_are_counted_as_generations(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    assert created["metadata"]["generation"] == 1
    labelled = (await api.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})).expect(200)
    assert labelled["metadata"]["generation"] == 1
    patch = {"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}
    changed = (await api.patch(f"{PODS}/web", patch, "strategic-merge-patch+json")).expect(200)
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
async def test_a_dry_run_answers_and_changes_nothing(api: Api, verb: str) -> None:
    before = (await api.post(CONFIG_MAPS, config_map("kept", a="1"))).expect(201)
    match verb:
        case "post":
            (await api.post(CONFIG_MAPS, config_map("new"), dryRun="All")).expect(201)
        case "put":
            answer = await api.put(f"{CONFIG_MAPS}/kept", config_map("kept", a="2"), dryRun="All")
            assert answer.expect(200)["data"] == {"a": "2"}
        case "patch":
            (await api.patch(f"{CONFIG_MAPS}/kept", {"data": {"a": "2"}}, dryRun="All")).expect(200)
        case "delete":
            (await api.delete(f"{CONFIG_MAPS}/kept", dryRun="All")).expect(200)
    listed = (await api.get(CONFIG_MAPS)).expect(200)
    assert names(listed) == ["kept"]
    assert (await api.get(f"{CONFIG_MAPS}/kept")).expect(200) == before
    assert listed["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_an_explicit_null_is_a_field_that_is_not_there(api: Api) -> None:
    body = {**config_map(), "data": None, "metadata": {"name": "settings", "labels": None, "creationTimestamp": None}}
    created = (await api.post(CONFIG_MAPS, body)).expect(201)
    assert "data" not in created
    assert "labels" not in created["metadata"]


async def test_texts_of_secrets_are_stored_encoded(api: Api) -> None:
    secrets = CONFIG_MAPS.replace("configmaps", "secrets")
    created = (await api.post(secrets, {"metadata": {"name": "s"}, "stringData": {"key": "b"}})).expect(201)
    assert created["data"] == {"key": "Yg=="}
    assert created["type"] == "Opaque"
    assert "stringData" not in created


async def test_sealed_config_maps_do_not_change(api: Api) -> None:
    await api.post(CONFIG_MAPS, {**config_map(a="1"), "immutable": True})
    assert "data: Forbidden" in (await api.patch(f"{CONFIG_MAPS}/settings", {"data": {"a": "2"}})).refused(
        422, "Invalid"
    )


async def test_nodes_take_numbers_and_offer_what_they_have(api: Api) -> None:
    body = {"metadata": {"name": "node-1"}, "status": {"capacity": {"cpu": 8, "example.com/gpu": 4}}}
    status = (await api.post(NODES, body)).expect(201)["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "8", "example.com/gpu": "4"}
    refused = await api.patch(f"{NODES}/node-1/status", {"status": {"capacity": {"cpu": "much"}}})
    refused.unreadable()


async def test_a_namespace_on_what_has_none_is_dropped(api: Api) -> None:
    node = {"metadata": {"name": "n", "namespace": "kube-system"}}
    assert "namespace" not in (await api.post(NODES, node)).expect(201)["metadata"]
    assert "namespace" not in (await api.put(f"{NODES}/n", node)).expect(200)["metadata"]

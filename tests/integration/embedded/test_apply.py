"""Server-side apply: who manages which fields, who conflicts with whom, and what goes when it is no longer wished."""

from typing import Any

import pytest

from tests.integration.embedded.client import CONFIG_MAPS, NODES, PODS, Answer, Api, config_map, container, pod
from tests.integration.embedded.test_deployments import DEPLOYMENTS, deployment

APPLY = "apply-patch+yaml"
SETTINGS = f"{CONFIG_MAPS}/settings"


async def apply(api: Api, path: str, wish: Any, manager: str = "alice", **query: str) -> Answer:
    return await api.patch(path, wish, APPLY, fieldManager=manager, **query)


def managers(obj: Any) -> dict[tuple[str, ...], Any]:
    """The fields by operation, manager and, where there is one, subresource."""
    found = {}
    for entry in obj["metadata"].get("managedFields", ()):
        who = (entry["operation"], entry["manager"], *filter(None, [entry.get("subresource")]))
        assert entry["fieldsType"] == "FieldsV1"
        found[who] = entry["fieldsV1"]
    return found


def fields(*names: str) -> dict[str, Any]:
    return {"f:data": {f"f:{name}": {} for name in names}}


async def test_an_apply_makes_what_is_missing_and_owns_it(api: Api) -> None:
    made = (await apply(api, SETTINGS, config_map(a="1"))).expect(201)
    assert managers(made) == {("Apply", "alice"): fields("a")}
    again = (await apply(api, SETTINGS, config_map(a="1"))).expect(200)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_another_value_for_a_field_of_others_is_a_conflict(api: Api) -> None:
    (await apply(api, SETTINGS, config_map(a="1"))).expect(201)
    answer = await apply(api, SETTINGS, config_map(a="2", b="2"), "bob")
    assert answer.refused(409, "Conflict") == 'Apply failed with 1 conflict: conflict with "alice": .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".data.a"}
    assert answer.body["details"] == {"causes": [cause]}


async def test_force_takes_the_field_over(api: Api) -> None:
    (await apply(api, SETTINGS, config_map(a="1", z="1"))).expect(201)
    taken = (await apply(api, SETTINGS, config_map(a="2"), "bob", force="true")).expect(200)
    assert taken["data"] == {"a": "2", "z": "1"}
    assert managers(taken) == {("Apply", "alice"): fields("z"), ("Apply", "bob"): fields("a")}
    (await apply(api, SETTINGS, config_map(a="1", z="1"))).refused(409, "Conflict")


async def test_the_same_value_is_owned_by_both(api: Api) -> None:
    (await apply(api, SETTINGS, config_map(a="1"))).expect(201)
    shared = (await apply(api, SETTINGS, config_map(a="1"), "bob")).expect(200)
    assert managers(shared) == {("Apply", "alice"): fields("a"), ("Apply", "bob"): fields("a")}
    left = (await apply(api, SETTINGS, config_map(b="2"))).expect(200)
    assert left["data"] == {"a": "1", "b": "2"}
    assert managers(left) == {("Apply", "alice"): fields("b"), ("Apply", "bob"): fields("a")}


async def test_what_is_left_out_goes_if_nobody_else_owns_it(api: Api) -> None:
    wish = {**config_map(a="1", b="1"), "metadata": {"name": "settings", "labels": {"x": "y"}, "finalizers": ["a.b/c"]}}
    (await apply(api, SETTINGS, wish)).expect(201)
    left = (await apply(api, SETTINGS, config_map(b="1"))).expect(200)
    assert left["data"] == {"b": "1"}
    assert not left["metadata"].keys() & {"labels", "finalizers"}


async def test_updates_take_fields_and_are_told_in_conflicts(api: Api) -> None:
    (await apply(api, SETTINGS, config_map(a="1", b="1"))).expect(201)
    patch = {"data": {"a": "9", "c": "3"}}
    changed = (await api.patch(SETTINGS, patch, fieldManager="probe")).expect(200)
    assert managers(changed) == {("Apply", "alice"): fields("b"), ("Update", "probe"): fields("a", "c")}
    answer = await apply(api, SETTINGS, config_map(a="1", b="1", c="1"))
    expected = 'Apply failed with 2 conflicts: conflicts with "probe" using v1:\n- .data.a\n- .data.c'
    assert answer.refused(409, "Conflict") == expected
    assert [cause["message"] for cause in answer.body["details"]["causes"]] == ['conflict with "probe" using v1'] * 2


async def test_what_an_update_removes_is_nobodys(api: Api) -> None:
    made = (await apply(api, SETTINGS, config_map(a="1", b="1"))).expect(201)
    put = (await api.put(SETTINGS, {**made, "data": {"b": "1"}}, fieldManager="probe")).expect(200)
    assert managers(put) == {("Apply", "alice"): fields("b")}


async def test_managers_can_be_taken_away(api: Api) -> None:
    made = (await apply(api, SETTINGS, config_map(a="1"))).expect(201)
    made["metadata"]["managedFields"] = []
    bare = (await api.put(SETTINGS, made)).expect(200)
    assert managers(bare) == {}
    told = (await apply(api, SETTINGS, config_map(a="2"))).refused(409, "Conflict")
    assert told.endswith('conflict with "before-first-apply" using v1: .data.a')
    forced = (await apply(api, SETTINGS, config_map(b="2"))).expect(200)
    before: Any = {"f:data": {".": {}, "f:a": {}}}
    assert managers(forced) == {("Apply", "alice"): fields("b"), ("Update", "before-first-apply"): before}


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    made = (await apply(api, SETTINGS, config_map(a="1"))).expect(201)
    tried = (await apply(api, SETTINGS, config_map(a="2"), "bob", force="true", dryRun="All")).expect(200)
    assert managers(tried) == {("Apply", "bob"): fields("a")}
    assert (await api.get(SETTINGS)).expect(200) == made


def keyed(**fields: Any) -> dict[str, Any]:
    return {".": {}, **fields}


async def test_lists_are_merged_by_their_keys(api: Api) -> None:
    env, ports = [{"name": "A", "value": "1"}], [{"containerPort": 80}]
    wish = {**pod(), "spec": {"containers": [container(env=env, ports=ports)]}}
    made = (await apply(api, f"{PODS}/web", wish)).expect(201)
    assert managers(made)["Apply", "alice"] == {
        "f:spec": {
            "f:containers": {
                'k:{"name":"main"}': keyed(
                    **{
                        "f:env": {'k:{"name":"A"}': keyed(**{"f:name": {}, "f:value": {}})},
                        "f:image": {},
                        "f:name": {},
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': keyed(**{"f:containerPort": {}})},
                    }
                )
            }
        }
    }
    other = {**pod(), "spec": {"containers": [{"name": "main", "image": "other:2"}]}}
    told = (await apply(api, f"{PODS}/web", other, "bob")).refused(409, "Conflict")
    assert told.endswith('conflict with "alice": .spec.containers[name="main"].image')
    changed = (await apply(api, f"{PODS}/web", other, "bob", force="true")).expect(200)
    (only,) = changed["spec"]["containers"]
    assert (only["image"], only["env"]) == ("other:2", env)


async def test_items_of_a_list_come_and_go_with_their_managers(api: Api) -> None:
    def wish(**variables: str) -> dict[str, Any]:
        env = [{"name": name, "value": value} for name, value in variables.items()]
        body = deployment()
        body["spec"]["template"]["spec"]["containers"] = [container(env=env)]
        return body

    def variables(found: Any) -> list[str]:
        return [held["name"] for held in found["spec"]["template"]["spec"]["containers"][0]["env"]]

    path = f"{DEPLOYMENTS}/web"
    assert variables((await apply(api, path, wish(A="1", B="1", C="1"))).expect(201)) == ["A", "B", "C"]
    assert variables((await apply(api, path, wish(D="1", B="1"), "bob")).expect(200)) == ["A", "D", "B", "C"]
    assert variables((await apply(api, path, wish(C="1", A="1"))).expect(200)) == ["D", "B", "C", "A"]
    assert variables((await apply(api, path, wish(D="1"), "bob")).expect(200)) == ["D", "C", "A"]


async def test_an_item_goes_although_others_have_written_into_it(api: Api) -> None:
    """Its manager is who owns the item; what others own in it goes with it."""
    (await api.post(PODS, pod())).expect(201)

    def wish(*types: str) -> dict[str, Any]:
        conditions = [{"type": name, "status": "True"} for name in types]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "status": {"conditions": conditions}}

    status = f"{PODS}/web/status"
    told = (await apply(api, status, wish("X", "Y"), "kubelet")).expect(200)
    item = keyed(**{"f:status": {}, "f:type": {}})
    shown = {"f:status": {"f:conditions": {'k:{"type":"X"}': item, 'k:{"type":"Y"}': item}}}
    assert managers(told)["Apply", "kubelet", "status"] == shown
    patch = {"status": {"conditions": [{"type": "X", "status": "False"}]}}
    kind = "strategic-merge-patch+json"
    changed = (await api.patch(status, patch, kind, fieldManager="up")).expect(200)
    mine: Any = {"f:status": {"f:conditions": {'k:{"type":"X"}': {"f:status": {}}}}}
    assert managers(changed)["Update", "up", "status"] == mine
    refused = (await apply(api, status, wish("X"), "other")).refused(409, "Conflict")
    assert refused.endswith(
        'conflict with "up" with subresource "status" using v1: .status.conditions[type="X"].status'
    )
    left = (await apply(api, status, wish("Y"), "kubelet")).expect(200)
    assert [condition["type"] for condition in left["status"]["conditions"]] == ["Y"]


async def test_what_is_replaced_whole_is_owned_whole(api: Api) -> None:
    main = container(command=["x"], resources={"limits": {"cpu": "1"}})
    wish = {**pod(), "spec": {"nodeSelector": {"a": "b"}, "containers": [main]}}
    made = (await apply(api, f"{PODS}/web", wish)).expect(201)
    spec = managers(made)["Apply", "alice"]["f:spec"]
    assert spec["f:nodeSelector"] == {}
    assert spec["f:containers"]['k:{"name":"main"}']["f:command"] == {}
    other = container(command=["y"], resources={"limits": {"cpu": "2"}})
    answer = await apply(api, f"{PODS}/web", {**wish, "spec": {"nodeSelector": {"c": "d"}, "containers": [other]}}, "b")
    assert answer.refused(409, "Conflict") == (
        'Apply failed with 3 conflicts: conflicts with "alice":\n- .spec.nodeSelector\n'
        '- .spec.containers[name="main"].command\n- .spec.containers[name="main"].resources.limits.cpu'
    )


async def test_taints_are_one_value(api: Api) -> None:
    def wish(key: str) -> dict[str, Any]:
        spec = {"taints": [{"key": key, "effect": "NoSchedule"}]}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec}

    (await apply(api, f"{NODES}/n", wish("a"))).expect(201)
    (await apply(api, f"{NODES}/n", wish("b"), "b")).refused(409, "Conflict")


async def test_the_scale_has_a_manager_of_its_own(api: Api) -> None:
    path = f"{DEPLOYMENTS}/web"
    (await apply(api, path, deployment(replicas=0))).expect(201)
    (await api.patch(f"{path}/scale", {"spec": {"replicas": 1}}, fieldManager="scaler")).expect(200)
    told = (await apply(api, path, deployment(replicas=0))).refused(409, "Conflict")
    assert told.endswith('conflict with "scaler" with subresource "scale" using apps/v1: .spec.replicas')
    wish = deployment()
    del wish["spec"]["replicas"]
    assert (await apply(api, path, wish)).expect(200)["spec"]["replicas"] == 1


async def test_the_status_of_a_pod_is_not_applied_with_it(api: Api) -> None:
    made = (await apply(api, f"{PODS}/web", {**pod(), "status": {"phase": "Failed"}})).expect(201)
    assert made["status"]["phase"] == "Pending"
    assert "f:status" not in managers(made)["Apply", "alice"]


TYPED = "failed to create typed patch object"
REFUSED = [
    pytest.param(
        {"fieldManager": ""}, {}, 422, "fieldManager: Required value: is required for apply patch", id="nobody"
    ),
    pytest.param({"fieldManager": "x" * 129}, {}, 422, "Too long: may not be more than 128 bytes", id="long name"),
    pytest.param({"fieldManager": "x\n"}, {}, 422, "invalid character U+000A (at position 1)", id="odd name"),
    pytest.param({}, {"kind": "Pod"}, 400, "invalid object type: /v1, Kind=Pod", id="other kind"),
    pytest.param({}, {"apiVersion": "apps/v1"}, 400, "invalid object type: apps/v1, Kind=ConfigMap", id="other group"),
    pytest.param({}, {"apiVersion": ""}, 400, "invalid object type: /, Kind=ConfigMap", id="no version"),
    pytest.param(
        {},
        {"metadata": {"name": "t"}},
        400,
        "the name of the object (t) does not match the name on the URL (settings)",
        id="other name",
    ),
    pytest.param(
        {},
        {"metadata": {}},
        400,
        "the name of the object (settings based on URL) was undeterminable: name must be provided",
        id="no name",
    ),
    pytest.param(
        {},
        {"metadata": {"name": "settings", "namespace": "t"}},
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
        id="other namespace",
    ),
    pytest.param(
        {},
        {"metadata": {"name": "settings", "managedFields": [{"manager": "x"}]}},
        400,
        "metadata.managedFields must be nil",
        id="managers",
    ),
    pytest.param(
        {},
        {"dat": {}},
        500,
        f"{TYPED} (/settings; /v1, Kind=ConfigMap): .dat: field not declared in schema",
        id="unknown field",
    ),
]


@pytest.mark.parametrize(("query", "changes", "code", "why"), REFUSED)
async def test_what_is_no_wish_is_refused(
    api: Api, query: dict[str, str], changes: dict[str, Any], code: int, why: str
) -> None:
    answer = await api.patch(SETTINGS, {**config_map(a="1"), **changes}, APPLY, **{"fieldManager": "alice", **query})
    assert why in answer.refused(code, {400: "BadRequest", 422: "Invalid", 500: ""}[code])


async def test_items_must_differ_and_are_named_in_refusals(api: Api) -> None:
    twice = {**pod(), "spec": {"containers": [container(), container()]}}
    told = (await apply(api, f"{PODS}/web", twice)).refused(500, "")
    assert told == f'{TYPED} (/web; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name="main"]'
    odd = {**pod(), "spec": {"containers": [container(imagee="x")]}}
    told = (await apply(api, f"{PODS}/web", odd)).refused(500, "")
    assert told.endswith('.spec.containers[name="main"].imagee: field not declared in schema')


async def test_an_item_without_its_key_is_another_item(api: Api) -> None:
    (await apply(api, f"{PODS}/web", pod())).expect(201)
    wish = {**pod(), "spec": {"containers": [{"image": "other:2"}]}}
    told = (await apply(api, f"{PODS}/web", wish, "bob")).refused(422, "Invalid")
    assert "spec.containers[1].name: Required value" in told


async def test_only_an_apply_may_be_forced(api: Api) -> None:
    (await api.post(CONFIG_MAPS, config_map(a="1"))).expect(201)
    told = (await api.patch(SETTINGS, {"data": {"a": "2"}}, force="true")).refused(422, "Invalid")
    assert told.endswith("force: Forbidden: may not be specified for non-apply patch")


async def test_an_apply_may_have_conditions(api: Api) -> None:
    made = (await apply(api, SETTINGS, config_map(a="1"))).expect(201)

    def wish(**metadata: str) -> dict[str, Any]:
        return {**config_map(a="2"), "metadata": {"name": "settings", **metadata}}

    (await apply(api, SETTINGS, wish(resourceVersion="1"))).refused(409, "Conflict")
    told = (await apply(api, SETTINGS, wish(uid="x"))).refused(422, "Invalid")
    assert told.endswith('metadata.uid: Invalid value: "x": field is immutable')
    (await apply(api, SETTINGS, wish(resourceVersion=made["metadata"]["resourceVersion"]))).expect(200)


async def test_the_status_of_what_does_not_exist_cannot_be_applied(api: Api) -> None:
    wish = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "status": {}}
    (await apply(api, f"{PODS}/web/status", wish)).refused(404, "NotFound")


@pytest.mark.embedded_only("a real server remembers who wrote what from the first write on")
async def test_what_nobody_has_applied_has_no_managers(api: Api) -> None:
    (await api.post(CONFIG_MAPS, config_map(a="1"), fieldManager="maker")).expect(201)
    changed = (await api.patch(SETTINGS, {"data": {"b": "1"}}, fieldManager="probe")).expect(200)
    assert managers(changed) == {}

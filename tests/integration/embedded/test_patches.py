"""The three kinds of patches, as functions and over HTTP."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.apiserver.statuses import BadRequest, StatusError, UnprocessablePatch
from aliquot.embedded.api.patches import json_patch, merge
from aliquot.embedded.api.strategic import strategic_merge
from tests.integration.embedded.client import CONFIG_MAPS, PODS, Api, config_map, container, pod

RFC_7386: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7386)
def test_merge_patches_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


leaves = st.one_of(st.booleans(), st.integers(), st.text(max_size=3))
names = st.sampled_from("abc")
documents = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
patches = st.recursive(st.one_of(leaves, st.none()), lambda inner: st.dictionaries(names, inner, max_size=3))


@given(documents, patches)
def test_merging_twice_changes_nothing_more(document: Any, patch: Any) -> None:
    once = merge(document, patch)
    assert merge(once, patch) == once


@given(st.dictionaries(names, documents), st.dictionaries(names, documents))
def test_any_object_can_be_reached_by_a_patch(before: dict[str, Any], after: dict[str, Any]) -> None:
    difference: dict[str, Any] = {name: None for name in before if name not in after}
    emptied = merge(before, dict.fromkeys(before))
    assert merge(emptied, after) == after
    assert set(merge(before, {**difference, **after})) == set(after)


@given(documents, patches)
def test_merging_leaves_its_input_alone(document: Any, patch: Any) -> None:
    copies = repr(document), repr(patch)
    merge(document, patch)
    assert (repr(document), repr(patch)) == copies


DOCUMENT: dict[str, Any] = {"a": {"b": 1}, "list": [1, 2, 3], "x/y": 0, "m~n": 1}
JSON_PATCHES: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([{"op": "add", "path": "/c", "value": 1}], {"c": 1}),
    ([{"op": "add", "path": "/a/b", "value": 2}], {"a": {"b": 2}}),
    ([{"op": "add", "path": "/list/1", "value": 9}], {"list": [1, 9, 2, 3]}),
    ([{"op": "add", "path": "/list/-", "value": 9}], {"list": [1, 2, 3, 9]}),
    ([{"op": "add", "path": "/list/3", "value": 9}], {"list": [1, 2, 3, 9]}),
    ([{"op": "remove", "path": "/list/0"}], {"list": [2, 3]}),
    ([{"op": "remove", "path": "/a/b"}], {"a": {}}),
    ([{"op": "replace", "path": "/x~1y", "value": 5}], {"x/y": 5}),
    ([{"op": "replace", "path": "/m~0n", "value": 5}], {"m~n": 5}),
    ([{"op": "replace", "path": "/list/2", "value": 5}], {"list": [1, 2, 5]}),
    ([{"op": "copy", "from": "/a", "path": "/c"}], {"c": {"b": 1}}),
    ([{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
    ([{"op": "test", "path": "/a", "value": {"b": 1}}], {}),
]


@pytest.mark.parametrize(("operations", "changed"), JSON_PATCHES)
def test_json_patches(operations: list[dict[str, Any]], changed: dict[str, Any]) -> None:
    original = repr(DOCUMENT)
    assert json_patch(DOCUMENT, operations) == {**DOCUMENT, **changed}
    assert repr(DOCUMENT) == original


def test_json_patches_of_the_whole_document() -> None:
    assert json_patch(DOCUMENT, [{"op": "replace", "path": "", "value": {"z": 1}}]) == {"z": 1}
    assert json_patch(DOCUMENT, [{"op": "remove", "path": ""}]) is None


BAD_JSON_PATCHES: list[tuple[dict[str, Any], type[StatusError]]] = [
    ({"op": "jump", "path": "/a"}, BadRequest),
    ({"op": "add", "path": "/a"}, BadRequest),
    ({"op": "add", "path": "a", "value": 1}, BadRequest),
    ({"op": "add", "value": 1}, BadRequest),
    ({"op": "move", "path": "/a"}, BadRequest),
    ({"op": "test", "path": "/a", "value": 2}, UnprocessablePatch),
    ({"op": "remove", "path": "/nothing"}, UnprocessablePatch),
    ({"op": "replace", "path": "/nothing", "value": 1}, UnprocessablePatch),
    ({"op": "add", "path": "/nothing/x", "value": 1}, UnprocessablePatch),
    ({"op": "add", "path": "/list/7", "value": 1}, UnprocessablePatch),
    ({"op": "remove", "path": "/list/-"}, UnprocessablePatch),
    ({"op": "remove", "path": "/list/-1"}, UnprocessablePatch),
    ({"op": "add", "path": "/a/b/c", "value": 1}, UnprocessablePatch),
]


@pytest.mark.parametrize(("operation", "error"), BAD_JSON_PATCHES)
def test_json_patches_that_do_not_apply(operation: dict[str, Any], error: type[StatusError]) -> None:
    with pytest.raises(error):
        json_patch(DOCUMENT, [operation])


ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
STRATEGIC: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("maps merge", {"m": {"a": 1, "b": 2}}, {"m": {"a": 3, "b": None}}, {"m": {"a": 3}}),
    (
        "items merge by name",
        {"env": ENV},
        {"env": [{"name": "B", "value": "3"}]},
        {"env": [ENV[0], {"name": "B", "value": "3"}]},
    ),
    ("new items come first", {"env": ENV}, {"env": [{"name": "C"}]}, {"env": [{"name": "C"}, *ENV]}),
    (
        "items stay before those that they were before",
        {"env": ENV},
        {"env": [{"name": "B", "value": "3"}, {"name": "C"}]},
        {"env": [ENV[0], {"name": "B", "value": "3"}, {"name": "C"}]},
    ),
    ("items are deleted", {"env": ENV}, {"env": [{"name": "A", "$patch": "delete"}]}, {"env": [ENV[1]]}),
    (
        "lists are replaced on demand",
        {"env": ENV},
        {"env": [{"$patch": "replace"}, {"name": "Z"}]},
        {"env": [{"name": "Z"}]},
    ),
    ("maps are replaced on demand", {"m": {"a": 1}}, {"m": {"$patch": "replace", "b": 2}}, {"m": {"b": 2}}),
    ("maps are emptied on demand", {"m": {"a": 1}}, {"m": {"$patch": "delete"}}, {"m": {}}),
    (
        "other lists are replaced",
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    (
        "ports of containers",
        {"ports": [{"containerPort": 1}]},
        {"ports": [{"containerPort": 1, "name": "x"}]},
        {"ports": [{"containerPort": 1, "name": "x"}]},
    ),
    ("ports of services", {"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 2}, {"port": 1}]}),
    ("finalizers are added", {"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
    (
        "finalizers are taken away",
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    (
        "an order is asked",
        {"env": ENV},
        {"$setElementOrder/env": [{"name": "B"}, {"name": "A"}]},
        {"env": [ENV[1], ENV[0]]},
    ),
    (
        "only some keys stay",
        {"m": {"a": 1, "b": 2}},
        {"m": {"$retainKeys": ["b", "c"], "c": 3}},
        {"m": {"b": 2, "c": 3}},
    ),
    (
        "deep items merge",
        {"containers": [{"name": "x", "env": ENV}]},
        {"containers": [{"name": "x", "env": [{"name": "A", "value": "9"}]}]},
        {"containers": [{"name": "x", "env": [{"name": "A", "value": "9"}, ENV[1]]}]},
    ),
]


@pytest.mark.parametrize(
    ("target", "patch", "result"), [case[1:] for case in STRATEGIC], ids=[case[0] for case in STRATEGIC]
)
def test_strategic_merges(target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    original = repr(target)
    assert strategic_merge(target, patch) == result
    assert repr(target) == original


@pytest.mark.parametrize(
    "patch", [{"$patch": "burn"}, {"env": [{"value": "1"}]}, {"m": {"$retainKeys": "a"}}, {"m": {"$patch": 1}}]
)
def test_strategic_merges_that_make_no_sense(patch: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        strategic_merge({"env": ENV, "m": {}}, patch)


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge-patch+json", {"data": {"a": "2"}}),
        ("strategic-merge-patch+json", {"data": {"a": "2"}}),
        ("json-patch+json", [{"op": "replace", "path": "/data/a", "value": "2"}]),
    ],
)
async def test_every_kind_over_http(api: Api, kind: str, patch: Any) -> None:
    await api.post(CONFIG_MAPS, config_map(a="1", b="1"))
    patched = await api.patch(f"{CONFIG_MAPS}/settings", patch, kind)
    assert patched.expect(200)["data"] == {"a": "2", "b": "1"}


async def test_a_patch_may_name_the_version_that_it_is_based_on(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map(a="1"))).expect(201)
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"a": "2"}}
    (await api.patch(f"{CONFIG_MAPS}/settings", patch)).expect(200)
    (await api.patch(f"{CONFIG_MAPS}/settings", patch)).refused(409, "Conflict")


async def test_patches_that_do_not_apply_are_refused(api: Api) -> None:
    await api.post(PODS, pod(containers=[container()]))
    test = [{"op": "test", "path": "/metadata/name", "value": "other"}]
    (await api.patch(f"{PODS}/web", test, "json-patch+json")).refused(422, "Invalid")
    (await api.patch(f"{PODS}/web", {}, "json-patch+json")).refused(400, "BadRequest")
    (await api.patch(f"{PODS}/web", [{"op": "remove", "path": ""}], "json-patch+json")).refused(422, "Invalid")
    (await api.patch(f"{PODS}/web", [], "merge-patch+json")).refused(400, "BadRequest")
    (await api.patch(f"{PODS}/web", {}, "unknown+json")).refused(415, "UnsupportedMediaType")

"""The map keeps a limited number of pods, in total and per namespace."""

from aliquot.control.state.bounded_map import BoundedMap


def filled(*pods: str, most: int = 4, of_namespace: int = 2) -> BoundedMap[int]:
    """Pods as `namespace/uid`, oldest first."""
    found = BoundedMap[int](most, of_namespace)
    for number, pod in enumerate(pods):
        namespace, _, uid = pod.partition("/")
        found.put(uid, namespace, number)
    return found


def test_the_oldest_of_a_namespace_makes_room_for_its_own() -> None:
    assert list(filled("a/1", "b/2", "b/3", "b/4").uids) == ["1", "3", "4"]


def test_the_oldest_of_all_makes_room_where_there_are_too_many() -> None:
    assert list(filled("a/1", "a/2", "b/3", "b/4", "c/5").uids) == ["2", "3", "4", "5"]


def test_what_is_put_again_is_the_newest() -> None:
    found = filled("a/1", "a/2", "a/1", "a/3")
    assert (list(found.uids), list(found)) == (["1", "3"], [2, 3])


def test_what_is_forgotten_leaves_its_place_to_others() -> None:
    found = filled("a/1", "a/2")
    assert (found.forget("1"), found.forget("1"), found.get("1")) == (0, None, None)
    found.put("3", "a", 7)
    assert (len(found), found.get("2"), found.get("3")) == (2, 1, 7)


def test_a_pod_that_changes_its_namespace_is_one_pod() -> None:
    found = filled("a/1", "b/1", "a/2", "a/3")
    assert list(found.uids) == ["1", "2", "3"]

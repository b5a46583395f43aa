"""Whatever happens: a list, followed by the watch from its version, leads to the same state as a list now."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aliquot.apiserver.eventlog import EventType, Stored
from aliquot.apiserver.objects import key_of
from aliquot.apiserver.store import Store
from aliquot.apiserver.watching import seen_through

COLLECTION = "things"
writes = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40
)


def thing(name: str, value: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value}


def perform(store: Store, history: list[tuple[str, str, int]]) -> dict[int, list[Stored]]:
    """Does the writes; the state after each revision."""
    states = {store.revision: store.snapshot(COLLECTION)}
    for action, name, value in history:
        if action == "put":
            store.put(COLLECTION, thing(name, value))
        elif store.get(COLLECTION, ("", name)) is not None:
            store.remove(COLLECTION, ("", name))
        states[store.revision] = store.snapshot(COLLECTION)
    return states


@given(writes)
def test_a_list_and_its_watch_lead_to_the_present(history: list[tuple[str, str, int]]) -> None:
    store = Store()
    for revision, listed in perform(store, history).items():
        replayed = {key_of(stored.obj): stored for stored in listed}
        for event in store.watch(COLLECTION, revision).ready():
            assert event.revision > revision
            if event.change is EventType.DELETED:
                del replayed[key_of(event.stored.obj)]
            else:
                assert (key_of(event.stored.obj) in replayed) is (event.change is EventType.MODIFIED)
                replayed[key_of(event.stored.obj)] = event.stored
        assert [replayed[key] for key in sorted(replayed)] == store.snapshot(COLLECTION)


@given(writes)
def test_every_remembered_state_can_be_listed_again(history: list[tuple[str, str, int]]) -> None:
    store = Store()
    for revision, listed in perform(store, history).items():
        assert store.snapshot(COLLECTION, revision) == listed


@given(writes, st.integers(0, 9))
def test_a_selected_list_and_its_watch_lead_to_the_present(history: list[tuple[str, str, int]], bound: int) -> None:
    def chosen(stored: Stored) -> bool:
        return bool(stored.obj["value"] < bound)

    store = Store()
    for revision, listed in perform(store, history).items():
        replayed = {key_of(stored.obj): stored for stored in listed if chosen(stored)}
        for event in store.watch(COLLECTION, revision).ready():
            seen = seen_through(chosen, event)
            if seen is None:
                continue
            change, stored = seen
            assert stored.revision == event.revision
            assert (key_of(stored.obj) in replayed) is (change is not EventType.ADDED)
            replayed[key_of(stored.obj)] = stored
            if change is EventType.DELETED:
                del replayed[key_of(stored.obj)]
        now = [stored for stored in store.snapshot(COLLECTION) if chosen(stored)]
        assert [replayed[key] for key in sorted(replayed)] == now

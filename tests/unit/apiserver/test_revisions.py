"""Revisions of a store that counts in its own steps: it knows those of other stores."""

import pytest

from aliquot.apiserver.statuses import ResourceExpired, ResourceVersionTooLarge
from aliquot.apiserver.store import Store
from tests.unit.apiserver.test_replay import COLLECTION, thing


def test_revisions_count_in_steps() -> None:
    store = Store(first=107, step=100)
    assert [store.put(COLLECTION, thing("a", value)).revision for value in range(3)] == [207, 307, 407]


@pytest.mark.parametrize("foreign", [7, 206, 208, 1208])
def test_a_revision_of_another_store_has_expired(foreign: int) -> None:
    store = Store(first=107, step=100)
    store.put(COLLECTION, thing("a", 1))
    with pytest.raises(ResourceExpired):
        store.watch(COLLECTION, foreign)
    with pytest.raises(ResourceExpired):
        store.snapshot(COLLECTION, foreign)


def test_a_revision_of_its_own_that_is_yet_to_come_is_too_large() -> None:
    with pytest.raises(ResourceVersionTooLarge):
        Store(first=107, step=100).watch(COLLECTION, 207)


def test_the_same_object_is_not_stored_again() -> None:
    store = Store()
    assert store.put_if_changed(COLLECTION, thing("a", 1))
    assert not store.put_if_changed(COLLECTION, thing("a", 1))
    assert store.put_if_changed(COLLECTION, thing("a", 2))
    assert store.revision == 2

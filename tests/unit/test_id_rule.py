"""Which device ids are unhealthy when cards fail."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.agent.id_rule import IdHolder, list_ids

OWN = [f"{card}-{unit}" for card in "ab" for unit in range(4)]
FAILED = frozenset(device for device in OWN if device.startswith("b"))


def holder(*ids: str, good: bool = True) -> IdHolder:
    return IdHolder(frozenset(ids), good)


def test_without_a_failed_card_every_id_is_healthy() -> None:
    assert list_ids(OWN, frozenset(), [holder("a-0")]).unhealthy == frozenset()


def test_the_ids_of_a_failed_card_come_first_if_they_are_free() -> None:
    assert list_ids(OWN, FAILED, []).unhealthy == FAILED


def test_ids_of_containers_on_the_failed_card_come_before_free_ones() -> None:
    """The container on the failed card holds ids that look like the other card's."""
    listed = list_ids(OWN, FAILED, [holder("a-0", "a-1", good=False), holder("b-0", "b-1")])
    assert listed.unhealthy == {"a-0", "a-1", "b-2", "b-3"}


def test_ids_of_containers_on_good_cards_are_healthy_even_if_too_few_others_are_left() -> None:
    listed = list_ids(OWN, FAILED, [holder(*OWN[:7])])
    assert listed.unhealthy == {"b-3"}


def test_an_id_that_an_init_container_on_a_failed_card_left_to_one_on_a_good_card_is_healthy() -> None:
    listed = list_ids(OWN, FAILED, [holder("a-0", "a-1", good=False), holder("a-0")])
    assert "a-0" not in listed.unhealthy
    assert "a-1" in listed.unhealthy


def test_held_ids_stay_listed_when_their_card_is_gone() -> None:
    """Another plugin gave them other names, or the card was removed."""
    listed = list_ids(OWN[:4], frozenset(), [holder("b-0", "b-1", good=False)])
    assert listed.ids == ("a-0", "a-1", "a-2", "a-3", "b-0", "b-1")
    assert listed.unhealthy == {"b-0", "b-1"}


def test_ids_from_another_plugin_take_the_place_of_free_ones() -> None:
    listed = list_ids(OWN, frozenset(), [holder("old-0", "old-1")])
    assert len(listed.ids) - len(listed.unhealthy) == len(OWN)
    assert not listed.unhealthy & {"old-0", "old-1"}


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[str], frozenset[str], list[IdHolder]]:
    """Some cards of some units, of which some have failed, and containers with ids of their own."""
    units = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    ids = [f"{card}-{unit}" for card, count in enumerate(units) for unit in range(count)]
    bad = draw(st.sets(st.sampled_from(range(len(units)))))
    failed = frozenset(device for device in ids if int(device.split("-")[0]) in bad)
    left = draw(st.permutations([*ids, *(f"old-{number}" for number in range(4))]))
    holders = []
    for count in draw(st.lists(st.integers(1, 4), max_size=8)):
        holders.append(IdHolder(frozenset(left[:count]), draw(st.booleans())))
        left = left[count:]
    return ids, failed, holders


@given(nodes())
def test_the_rule_holds_on_every_node(node: tuple[list[str], frozenset[str], list[IdHolder]]) -> None:
    own, failed, holders = node
    listed = list_ids(own, failed, holders)
    held = {device for each in holders for device in each.ids}
    kept = {device for each in holders if each.is_on_good_cards for device in each.ids}
    healthy = len(own) - len(failed)
    assert set(listed.ids) == {*own, *held}, "no id vanishes, least of all one that is held"
    assert len(set(listed.ids)) == len(listed.ids)
    assert not listed.unhealthy & kept, "a container on good cards keeps its ids"
    assert listed.unhealthy <= set(listed.ids)
    assert len(listed.ids) - len(listed.unhealthy) == max(healthy, len(kept)), "the number is right if it can be"
    bad = {device for each in holders if not each.is_on_good_cards for device in each.ids} - kept
    assert bad <= listed.unhealthy or listed.unhealthy <= bad, "containers on failed cards come first"
    assert listed == list_ids(own, failed, list(reversed(holders)))

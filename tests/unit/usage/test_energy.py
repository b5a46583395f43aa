"""Each container's part of a card's energy."""

from aliquot.agent.devices import Usage
from aliquot.agent.usage.energy import EnergyShares
from aliquot.agent.usage.shares import Share

A, B = ("pod-a", "main", "GPU-1"), ("pod-b", "main", "GPU-1")


def card(joules: float | None) -> dict[str, Usage]:
    return {"GPU-1": Usage(joules=joules)}


def test_what_nobody_computes_is_nobodys() -> None:
    energy = EnergyShares()
    shares = {A: Share(cores=0.25), B: Share(cores=0.5)}
    assert energy.count(card(1000), shares) == {A: 0.0, B: 0.0}
    assert energy.count(card(1100), shares) == {A: 25.0, B: 50.0}
    assert energy.count(card(1200), {A: Share(cores=0.0)}) == {A: 25.0}
    assert energy.count(card(1300), {A: Share(cores=None), B: Share(cores=1.0)}) == {A: 25.0, B: 100.0}


def test_the_parts_never_make_more_than_the_whole() -> None:
    energy = EnergyShares()
    shares = {A: Share(cores=1.0), B: Share(cores=1.0)}
    energy.count(card(0), shares)
    assert energy.count(card(100), shares) == {A: 50.0, B: 50.0}


def test_a_count_that_begins_again_takes_nothing_away() -> None:
    energy = EnergyShares()
    shares = {A: Share(cores=1.0)}
    energy.count(card(1000), shares)
    assert energy.count(card(1010), shares) == {A: 10.0}
    assert energy.count(card(5), shares) == {A: 10.0}, "the driver was loaded again"
    assert energy.count(card(8), shares) == {A: 13.0}


def test_a_card_that_counts_no_energy() -> None:
    assert EnergyShares().count(card(None), {A: Share(cores=1.0)}) == {}

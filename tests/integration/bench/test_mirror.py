"""The benchmark of mirrors measures what it says: each listener knows the whole cluster in the end."""

import pytest

from bench import mirror

SIZE = mirror.Size(nodes=8, pods=60, events=30, peer_events=30, spaced_events=5)


@pytest.mark.parametrize("who", ["ours", "plane", "official", "official_informer"])
def test_every_listener_knows_the_whole_cluster_and_hears_every_change(who: str) -> None:
    with mirror.served(SIZE) as url:
        known = mirror.listened(who, url, SIZE, SIZE.events)
    assert (known.nodes, known.pods) == (SIZE.nodes, SIZE.pods)
    assert known.sync_seconds > 0
    assert known.event_us > 0

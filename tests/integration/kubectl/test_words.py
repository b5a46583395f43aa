"""Singular and plural."""

from pathlib import Path

import pytest

from aliquot.model import Placement, Slice
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import make_pod
from tests.integration.kubectl.cluster import cluster
from tests.integration.kubectl.command import archived, gpu


@pytest.mark.parametrize(("slots", "words"), [(1, "1 slot "), (2, "2 slots ")])
def test_slots(slots: int, words: str, tmp_path: Path) -> None:
    part = Slice("GPU-x", 0, 0, 0, 0, slots)
    record = {"annotations": {PLACEMENT: write_placement(Placement("unseen", "aliquot", {"main": (part,)}))}}
    pod = make_pod("p", uid="uid-p", node="unseen", metadata=record, status={"phase": "Running"})
    archive = archived(cluster(pods=[pod]), tmp_path)
    assert words in gpu("pods", "--from", archive).out
    assert (
        f"container main: {words.replace(' s', ' MPS s')}of card 0, GPU-x" in gpu("explain", "p", "--from", archive).out
    )

"""Measurements that are neither old nor from the future."""

import msgspec
import pytest

from aliquot.kube.resources import Lease
from aliquot.model.load import LOAD, NodeLoad, write_load
from aliquot.reports.view import recent_loads

NOW = 1_000_000.0


@pytest.mark.parametrize(("at", "is_recent"), [(NOW - 91, False), (NOW - 90, True), (NOW + 90, True), (1e11, False)])
def test_a_clock_that_is_wrong_does_not_make_a_measurement_last(at: float, is_recent: bool) -> None:
    meta = {"name": "n1", "annotations": {LOAD: write_load(NodeLoad(at))}}
    lease = msgspec.convert({"metadata": meta}, Lease)

    assert bool(recent_loads({"n1": lease}, NOW)) is is_recent

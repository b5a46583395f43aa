"""Measurements that are neither old nor from the future, and agents that are late."""

from datetime import UTC, datetime

import msgspec
import pytest

from aliquot.kube.resources import Lease
from aliquot.model.load import LOAD, NodeLoad, write_load
from aliquot.reports.view import recent_loads, silent_agents

NOW = 1_000_000.0


@pytest.mark.parametrize(("at", "is_recent"), [(NOW - 61, False), (NOW - 60, True), (NOW + 60, True), (1e11, False)])
def test_a_clock_that_is_wrong_does_not_make_a_measurement_last(at: float, is_recent: bool) -> None:
    meta = {"name": "n1", "annotations": {LOAD: write_load(NodeLoad(at))}}
    lease = msgspec.convert({"metadata": meta}, Lease)

    assert bool(recent_loads({"n1": lease}, NOW)) is is_recent


@pytest.mark.parametrize(
    ("duration", "silence", "is_silent"),
    [(20, 20, False), (20, 21, True), (None, 40, False), (None, 41, True), (3600, 41, True), (3600, 40, False)],
)
def test_an_agent_is_silent_after_its_lease_s_duration_and_after_40_s_at_the_latest(
    duration: int | None, silence: int, is_silent: bool
) -> None:
    renewed = datetime.fromtimestamp(NOW - silence, UTC).isoformat()
    spec = {"renewTime": renewed, "leaseDurationSeconds": duration}
    lease = msgspec.convert({"metadata": {"name": "n1"}, "spec": spec}, Lease)

    assert silent_agents({"n1": lease}, NOW) == ({"n1": silence} if is_silent else {})

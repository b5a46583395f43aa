"""Killed at the worst moments: nothing is lost, nothing doubled, nobody on a wrong card."""

import json
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.checker import findings
from tests.e2e import pods
from tests.rig import Rig
from tests.rig.aliquot import Aliquot
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot", "a_pod_that_runs_already")]

NAMES = [f"hit-{number}" for number in range(4)]
BEFORE = "before"


@pytest.fixture
def a_pod_that_runs_already(rig: Rig) -> None:
    pods.create(rig, [pods.pod(BEFORE, units=5)])
    pods.wait_running(rig, [BEFORE])


@pytest.mark.parametrize("point", ["after-filter", "after-claim", "after-binding-sent"])
def test_server_killed(rig: Rig, aliquot: Aliquot, point: str) -> None:
    aliquot.server.stop()
    aliquot.start_server(fault=point)
    pods.create(rig, [pods.pod(name, units=5) for name in NAMES])
    assert aliquot.server.wait(30) == -signal.SIGKILL
    aliquot.start_server()
    _all_is_well(rig)


@pytest.mark.parametrize("point", ["after-allocate", "in-prestart"])
def test_agent_killed(rig: Rig, aliquot: Aliquot, point: str) -> None:
    aliquot.agent.stop()
    aliquot.start_agent(fault=point)
    pods.create(rig, [pods.pod(NAMES[0], units=5)])
    assert aliquot.agent.wait(60) == -signal.SIGKILL
    aliquot.start_agent()
    pods.create(rig, [pods.pod(name, units=5) for name in NAMES[1:]])
    _all_is_well(rig)


def test_kubelet_restarted(rig: Rig, aliquot: Aliquot) -> None:
    """What runs goes on untouched, and the agent registers again by itself."""
    before = pods.get(rig, BEFORE)["status"]["containerStatuses"][0]["containerID"]
    registered = aliquot.registrations()
    rig.kubelet.restart()
    wait_for("the agent to register again", lambda: aliquot.registrations() > registered, seconds=60)
    rig.wait_node_ready()
    pods.create(rig, [pods.pod(name, units=5) for name in NAMES])
    _all_is_well(rig)
    assert pods.get(rig, BEFORE)["status"]["containerStatuses"][0]["containerID"] == before


def test_a_pod_that_the_control_plane_fails_holds_its_card_until_its_containers_end(rig: Rig, aliquot: Aliquot) -> None:
    """As on a node that is out of reach: a kubelet that runs takes back such a word. When kubelet is back, it ends the
    containers, and this one takes all the time that it gets."""
    stubborn = pods.pod("failed", units=15, terminationGracePeriodSeconds=8)
    stubborn["spec"]["containers"][0]["command"] = ["sh", "-c", "trap '' TERM; sleep 3600"]
    pods.create(rig, [stubborn])
    pods.wait_running(rig, ["failed"])
    card = pods.look_inside(rig, "failed").environment["NVIDIA_VISIBLE_DEVICES"]
    registered = aliquot.registrations()
    rig.kubelet.process.kill()
    failed = json.dumps({"status": {"phase": "Failed", "reason": "ByTheControlPlane"}})
    rig.kubectl("patch", "pod", "failed", "--subresource=status", "--patch", failed)
    pods.create(rig, [pods.pod("next", units=15)])
    back = datetime.now(UTC)
    rig.kubelet.start()
    aliquot.wait_registered(registered)
    pods.wait_running(rig, ["next"])
    assert pods.look_inside(rig, "next").environment["NVIDIA_VISIBLE_DEVICES"] == card
    ended = datetime.fromisoformat(_state(rig, "failed", "terminated")["finishedAt"])
    assert (ended - back).total_seconds() > 5, "it used its time"
    assert datetime.fromisoformat(_state(rig, "next", "running")["startedAt"]) >= ended
    assert pods.get(rig, BEFORE)["status"]["phase"] == "Running"


def _state(rig: Rig, name: str, which: str) -> dict[str, Any]:
    """The state of the pod's container, when it is that one."""

    def found() -> dict[str, Any]:
        state: dict[str, dict[str, Any]] = pods.get(rig, name)["status"]["containerStatuses"][0]["state"]
        return state.get(which, {})

    return wait_for(f"the container of {name} to be {which}", found, seconds=20, every=0.3)


def _all_is_well(rig: Rig) -> None:
    names = [BEFORE, *NAMES]
    pods.wait_running(rig, names, seconds=120)
    assert findings(pods.observe(rig), [f"default/{name}" for name in names]) == []

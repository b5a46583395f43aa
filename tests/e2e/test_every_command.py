"""Every command of our kubectl plug-ins on a real cluster: as admin, and as a tenant with rights in one namespace.

Within the test's own process, because there are many: test_kubectl_gpu.py has some of them under a real kubectl.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.model.admission import PLACEABLE
from tests import kubectl_commands
from tests.e2e import pods
from tests.kubectl_commands import COMMANDS, Command, Person, Place
from tests.rig import Rig
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("started")]


@pytest.fixture(scope="module")
def place(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster with the pods and the quota of the list of commands."""
    pods.delete_all(rig)
    rig.kubectl("create", "-f", "-", input=json.dumps(kubectl_commands.QUOTAS))
    rig.kubectl("create", "namespace", "others")
    account = ("get", "serviceaccount", "default", "--namespace=others", "--output=name")
    wait_for("the account of pods", lambda: rig.kubectl(*account, check=False), seconds=30)
    made = [_in_namespace(*where, units) for where, units in kubectl_commands.PODS.items()]
    pods.create(rig, made)
    for pod in made[:2]:
        ready = ("wait", "pod", pod["metadata"]["name"], "--for=condition=Ready", "--timeout=60s")
        rig.kubectl(*ready, f"--namespace={pod['metadata']['namespace']}")
    wait_for("why it waits", lambda: PLACEABLE in str(pods.get(rig, "waits")["status"]), seconds=30, every=0.3)
    folder = tmp_path_factory.mktemp("commands")
    (folder / "next.json").write_text(json.dumps(pods.pod("next")))
    seen = pods.get(rig, "seen")
    ((part,),) = json.loads(seen["metadata"]["annotations"]["aliquot.io/placement"])["containers"].values()
    yield Place(seen["spec"]["nodeName"], part["index"], part["uuid"], folder)
    rig.kubectl("delete", "pods", "--all", "--namespace=others", "--grace-period=1", "--timeout=60s")
    rig.kubectl("delete", "namespace", "others", "--wait=false")
    rig.kubectl("delete", "configmap", "gpuquota", "--namespace=kube-system")
    pods.delete_all(rig)


def _in_namespace(namespace: str, name: str, units: int) -> dict[str, Any]:
    return pods.pod(name, units) | {"metadata": {"name": name, "namespace": namespace}}


@pytest.fixture(scope="module")
def kubeconfigs(rig: Rig) -> dict[Person, Path]:
    rig.apply(kubectl_commands.tenant_of("default"))
    return {"admin": rig.admin_kubeconfig, "tenant": rig.service_account_kubeconfig("default", "tenant")}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
@pytest.mark.parametrize("person", ["admin", "tenant"])
def test_every_command_tells_what_matters(
    person: Person, command: Command, place: Place, kubeconfigs: dict[Person, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfigs[person]))
    assert place.wrong(command, person) == ""

"""Every command of our kubectl plug-ins on the cluster of `aliquot demo`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.app.demo.cluster import DemoCluster
from aliquot.embedded.api import kubeconfig, resources
from aliquot.embedded.api.identity import account
from aliquot.kube import CONFIG_MAPS, PODS
from aliquot.kubectl import gpu
from aliquot.model.admission import PLACEABLE
from aliquot.model.records import PLACEMENT
from tests import kubectl_commands
from tests.factories import pod_manifest
from tests.fakes import until
from tests.kubectl_commands import COMMANDS, Person, Place

_ROLES = {
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
}


def test_no_command_is_missing() -> None:
    assert {command.words.split()[1] for command in COMMANDS} == {*gpu.COMMANDS, "gpushare"}


async def test_every_command_tells_an_admin_and_a_tenant_what_matters(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DemoCluster(folder) as demo:
        place = await _filled(demo, tmp_path)
        wrong: list[tuple[str, str, str]] = []
        for person, config in _kubeconfigs(demo, tmp_path).items():
            monkeypatch.setenv("KUBECONFIG", str(config))
            wrong += [
                (person, command.words, fault)
                for command in COMMANDS
                if (fault := await asyncio.to_thread(place.wrong, command, person))
            ]
        assert wrong == []


def _kubeconfigs(demo: DemoCluster, folder: Path) -> dict[Person, Path]:
    for manifest in yaml.safe_load_all(kubectl_commands.tenant_of("default")):
        demo.cluster.registry.create(_ROLES[manifest["kind"]], "default", manifest)
    kubeconfig.write(demo.cluster.url, folder / "tenant", demo.cluster.users.add(account("default", "tenant")))
    return {"admin": demo.kubeconfig, "tenant": folder / "tenant"}


async def _filled(demo: DemoCluster, folder: Path) -> Place:
    await demo.client.create(CONFIG_MAPS, kubectl_commands.QUOTAS, "kube-system")
    demo.cluster.registry.create(resources.NAMESPACES, "", {"metadata": {"name": "others"}})

    def shown(namespace: str, name: str) -> Any:
        return demo.cluster.registry.get(resources.PODS, namespace, name).obj

    for (namespace, name), units in kubectl_commands.PODS.items():
        await demo.client.create(PODS, pod_manifest(name, units, namespace=namespace), namespace)
        if name != "waits":
            await until(lambda where=(namespace, name): shown(*where)["status"].get("phase") == "Running")  # type: ignore[misc]
    await until(lambda: PLACEABLE in str(shown("default", "waits")["status"]), "the server says why it waits")
    (folder / "next.json").write_text(json.dumps(pod_manifest("next", 3)))
    record = json.loads(shown("default", "seen")["metadata"]["annotations"][PLACEMENT])
    ((part,),) = record["containers"].values()
    return Place(shown("default", "seen")["spec"]["nodeName"], part["index"], part["uuid"], folder)

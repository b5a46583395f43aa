"""The query API on a real node: what it shows of a pod is what its container has, and restarts of server and agent in
any order leave a watcher with the truth."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from aliquot.kube import Client, Informer, from_kubeconfig
from aliquot.kube.resources import ApiResource
from aliquot.model import Object
from tests.e2e import left_behind, pods
from tests.e2e.test_taking_over import served_by
from tests.ports import free_port
from tests.real.aggregated import ACCOUNT, VERSIONS, register
from tests.rig import Rig
from tests.rig.agent import command
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import answers, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("aliquot", "served")]

PODRESOURCES = ApiResource("apis/metrics.nvidia.com/v1alpha1", "podresources", Object, namespaced=False)


@dataclass(frozen=True)
class Served:
    rig: Rig
    process: Process
    ready_url: str

    def start(self) -> None:
        self.process.start()
        wait_for("the server to be ready", lambda: answers(self.ready_url), seconds=30, processes=[self.process])
        for group, version in VERSIONS.items():
            api_service = f"apiservice/{version}.{group}"
            self.rig.kubectl("annotate", "--overwrite", api_service, f"touched={self.process.pid}")  # it looks at once
            self.rig.kubectl("wait", "--for=condition=Available", api_service, "--timeout=60s")

    def shown(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rig.kubectl("get", *words, "-o", "json"))
        return found


@pytest.fixture(scope="module")
def served(rig: Rig, started: Aliquot) -> Iterator[Served]:
    """A server with the query API in place of the usual one, at the same addresses."""
    started.server.stop()
    port = free_port()
    registered = register(rig.apply, port)
    flags = {
        "kubeconfig": rig.service_account_kubeconfig(*ACCOUNT),
        "address": LOOPBACK,
        "gpushare-port": urlsplit(started.url).port,
        "native-port": urlsplit(started.native_url).port,
        "nvidia-port": port,
        "health-port": 0,
        "admission-enabled": "false",
        "elastic-enabled": "false",
        "query-api-enabled": "true",
        "lease-duration": 5,
        "lease-renew": 3.5,
        "lease-retry": 0.5,
    }
    made = Served(rig, rig.process("aliquot-query-server", command("server", flags)), f"{started.native_url}/readyz")
    made.start()
    yield made
    made.process.stop()
    rig.kubectl("delete", "-f", "-", input=registered)
    started.start_server()


def test_what_is_shown_is_what_the_container_has(rig: Rig, served: Served) -> None:
    pods.create(rig, [pods.pod("seen", units=3)])
    pods.wait_running(rig, ["seen"])
    shown = served.shown("podresources", "default.seen")
    (container,) = shown["spec"]["containers_device"]
    (device,) = container["device_info"]
    assert [device["device_id"]] == pods.cards_of(rig, "seen")
    assert (container["container_name"], shown["spec"]["node_name"]) == ("main", rig.node_name)
    node = served.shown("gpuinfos", rig.node_name)
    assert node["status"]["node_health"] == "True"
    assert node["spec"]["device_busy"] == [device["device_id"]]
    by_uuid = {gpu.uuid: gpu for gpu in rig.nvml.gpus}
    assert node["spec"]["device_infos"].keys() == by_uuid.keys()
    assert device["device_model"] == by_uuid[device["device_id"]].model


def test_cards_that_nvidias_plugin_gave_are_shown_as_well(rig: Rig, served: Served, aliquot: Aliquot) -> None:
    aliquot.agent.stop()
    rig.kubectl("label", "node", rig.node_name, "aliquot.io/observed=true")
    rig.restart_scheduler(aliquot.scheduler_config("native"))
    try:
        with served_by(rig, left_behind.NVIDIA, 0):
            aliquot.start_agent_by_labels()
            pods.create(rig, [pods.pod("theirs", limits=left_behind.NVIDIA.limits)])
            pods.wait_running(rig, ["theirs"])
            given = pods.look_inside(rig, "theirs").environment[left_behind.VISIBLE]
            wait_for("its card to be shown", lambda: _cards(served) == {"default.theirs": [given]}, seconds=30)
            assert served.shown("gpuinfos", rig.node_name)["spec"]["device_busy"] == [given]
            pods.delete_all(rig)
            wait_for("it to be gone", lambda: _cards(served) == {}, seconds=30)
    finally:
        rig.kubectl("label", "node", rig.node_name, "aliquot.io/observed-")
        aliquot.serve(GPUSHARE, "gpushare")


def _cards(served: Served) -> dict[str, list[str]]:
    return {
        pod["metadata"]["name"]: [
            device["device_id"] for each in pod["spec"]["containers_device"] for device in each["device_info"]
        ]
        for pod in served.shown("podresources")["items"]
    }


def test_restarts_in_any_order_leave_a_watcher_with_the_truth(rig: Rig, served: Served, aliquot: Aliquot) -> None:
    asyncio.run(_followed(rig, served, aliquot))


async def _followed(rig: Rig, served: Served, aliquot: Aliquot) -> None:
    restarts = {"server": served.start, "agent": aliquot.start_agent}
    processes = {"server": served.process, "agent": aliquot.agent}
    async with Client(from_kubeconfig(rig.admin_kubeconfig)) as client:
        informer = Informer(client, PODRESOURCES, lambda _, __: None)
        running = asyncio.create_task(informer.run())
        try:
            for name, order in (("a", ("server", "agent")), ("b", ("agent", "server"))):
                await asyncio.to_thread(_run, rig, name)
                await _until(lambda: _names(informer) == _placed(rig))
                for each in order:
                    processes[each].kill()
                rig.kubectl("delete", "pod", name, "--force", "--grace-period=0")
                for each in order:
                    restarts[each]()
                await _until(lambda: _names(informer) == _placed(rig))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def _run(rig: Rig, name: str) -> None:
    pods.create(rig, [pods.pod(name, units=2)])
    pods.wait_running(rig, [name])


def _names(informer: Informer[Object]) -> set[str]:
    return {each.metadata.name for each in informer.all()}


def _placed(rig: Rig) -> set[str]:
    return {f"{m['namespace']}.{m['name']}" for pod in pods.observe(rig).pods if (m := pod["metadata"])}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.1)


def test_an_agent_that_is_gone_is_told_and_so_is_its_return(rig: Rig, aliquot: Aliquot) -> None:
    def wait_health(health: str) -> None:
        words = f"--for=jsonpath={{.status.node_health}}={health}", f"gpuinfos/{rig.node_name}"
        rig.kubectl("wait", *words, "--timeout=90s")

    wait_health("True")
    aliquot.agent.kill()
    wait_health("False")
    aliquot.start_agent()
    wait_health("True")

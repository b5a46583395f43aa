"""A real Volcano scheduler beside the real API server, with the shipped configuration."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import yaml

from tests.real.by_hand import Refusal
from tests.real.scheduler import DEPLOY, Scheduling
from tests.reliability.servers import free_port
from tests.rig import volcano
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import answers, wait_for

_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_KEY = "volcano-scheduler.conf"
_READY_SECONDS = 60.0


@contextmanager
def scheduling(
    cluster: Scheduling, version: str, url: str, progress: Callable[[str], None], **arguments: object
) -> Iterator[Process]:
    """Volcano of this version, asking an extender at `url` (with its path); `arguments` are more of the extender's."""
    programs = volcano.find(version, progress)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(programs / volcano.CRDS))
    folder, port = cluster.api.control_plane.folder, free_port()
    config = folder / "volcano-scheduler.conf"
    config.write_text(yaml.safe_dump(_configuration({"extender.urlPrefix": url, **arguments})))
    flags = {
        "kubeconfig": cluster.api.control_plane.kubeconfig("admin"),
        "scheduler-conf": config,
        "leader-elect": "false",
        "listen-address": f"{LOOPBACK}:{port}",
        "enable-healthz": "false",
        "schedule-period": "200ms",
    }
    argv = [str(programs / volcano.SCHEDULER), *(f"--{name}={value}" for name, value in flags.items())]
    process = Process(f"volcano-{version}", argv, log=folder / f"volcano-{version}.log")
    try:
        process.start()
        wait_for(
            "Volcano to be ready",
            lambda: answers(f"http://{LOOPBACK}:{port}/metrics"),
            seconds=_READY_SECONDS,
            processes=[process],
        )
        yield process
    finally:
        process.stop()
        _remove_groups(cluster)


def gang(cluster: Scheduling, name: str, pods: Sequence[Mapping[str, Any]], *, least: int = 0) -> list[str]:
    """Create the pods as a gang of which at least so many (all) must have a place; returns their names."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least or len(pods), "queue": "default"},
    }
    cluster.ask("POST", _GROUPS, group)
    for pod in pods:
        marked = {**pod["metadata"].get("annotations", {}), "scheduling.k8s.io/group-name": name}
        spec = {**pod["spec"], "schedulerName": "volcano"}
        cluster.create({**pod, "metadata": {**pod["metadata"], "annotations": marked}, "spec": spec})
    return [pod["metadata"]["name"] for pod in pods]


def _configuration(arguments: Mapping[str, object]) -> dict[str, Any]:
    """What the shipped ConfigMap says, with other arguments for the extender."""
    shipped = yaml.safe_load((DEPLOY / "volcano" / "volcano-scheduler-configmap.yaml").read_text())
    config: dict[str, Any] = yaml.safe_load(shipped["data"][_KEY])
    for tier in config["tiers"]:
        for plugin in tier["plugins"]:
            if plugin["name"] == "extender":
                plugin["arguments"] |= arguments
    return config


def _remove_groups(cluster: Scheduling) -> None:
    for group in cluster.ask("GET", _GROUPS)["items"]:
        with suppress(Refusal):
            cluster.ask("DELETE", f"{_GROUPS}/{group['metadata']['name']}")

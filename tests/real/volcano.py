"""A real Volcano scheduler beside the real API server, with the shipped configuration."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.ports import free_port
from tests.real.by_hand import Refusal
from tests.real.scheduler import DEPLOY, Scheduling
from tests.rig import volcano
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import wait_for

_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
_KEY = "volcano-scheduler.conf"


def install(cluster: Scheduling, version: str, progress: Callable[[str], None]) -> Path:
    """Volcano's kinds of objects in the API server; returns the folder with its scheduler."""
    programs = volcano.find(version, progress)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(programs / volcano.CRDS))
    wait_for("pod groups to be served", lambda: _are_served(cluster), seconds=30)
    return programs


@contextmanager
def scheduling(cluster: Scheduling, programs: Path, url: str, **arguments: object) -> Iterator[Process]:
    """An installed Volcano that asks an extender at `url` (with its path); `arguments` are more of the extender's."""
    folder = cluster.api.control_plane.folder
    config = folder / "volcano" / _KEY
    config.parent.mkdir(exist_ok=True)  # Volcano reads it anew whenever any file beside it changes
    config.write_text(yaml.safe_dump(_configuration({"extender.urlPrefix": url, **arguments})))
    flags = {
        "kubeconfig": cluster.api.control_plane.kubeconfig("admin"),
        "scheduler-conf": config,
        "leader-elect": "false",
        "listen-address": f"{LOOPBACK}:{free_port()}",
        "schedule-period": "200ms",
    }
    argv = [str(programs / volcano.SCHEDULER), *(f"--{name}={value}" for name, value in flags.items())]
    process = Process(programs.name, argv, log=folder / f"{programs.name}.log")
    try:
        process.start()
        wait_for("Volcano to have a queue", lambda: _has_opened_queue(cluster), seconds=60, processes=[process])
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


def _are_served(cluster: Scheduling) -> bool:
    """Not while the definition is new, or another than a moment ago."""
    with suppress(Refusal, msgspec.DecodeError):
        cluster.ask("GET", _GROUPS)
        return True
    return False


def _has_opened_queue(cluster: Scheduling) -> bool:
    """Volcano's scheduler makes the queue, and its controllers, which are not here, open it."""
    opened = {"status": {"state": "Open"}}
    with suppress(Refusal):
        cluster.ask("PATCH", f"{_QUEUE}/status", opened, content="application/merge-patch+json")
        return True
    return False


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

"""Volcano's scheduler as a pod of the rig, so that it reaches Services by their names."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.rig import Image, Rig, volcano, wait_for

NAMESPACE = "volcano-stack"
_IMAGE = "docker.io/local/vc-scheduler:1"
_CONFIG = "volcano-scheduler-configmap"
_COMMAND = ["/bin/vc-scheduler", "--scheduler-conf=/conf/volcano-scheduler.conf", "--leader-elect=false"]

_ALL_RIGHTS = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: default, namespace: {NAMESPACE}}}]
"""


@contextmanager
def scheduling(rig: Rig, tier: list[dict[str, Any]], progress: Callable[[str], None]) -> Iterator[None]:
    """Volcano with this tier of plugins after those that it needs itself."""
    programs = volcano.find(volcano.CURRENT, progress)
    rig.kubectl("apply", "--server-side", "-f", str(programs / volcano.CRDS))
    rig.load_images([Image(_IMAGE, {"bin/vc-scheduler": programs / volcano.SCHEDULER})])
    rig.kubectl("create", "namespace", NAMESPACE)
    rig.apply(_ALL_RIGHTS)
    for document in _documents(tier):
        _create_when_possible(rig, document)
    wait_for("Volcano to have a queue", lambda: _has_opened_queue(rig), seconds=60)
    yield
    rig.kubectl("delete", "podgroups.scheduling.volcano.sh", "--all", "--namespace=default")
    rig.kubectl("delete", "-f", "-", input=_ALL_RIGHTS)
    rig.kubectl("delete", "namespace", NAMESPACE, "--timeout=90s")


def group(rig: Rig, name: str, members: int) -> None:
    spec = {"minMember": members, "queue": "default"}
    document = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    rig.apply(json.dumps(document))


def _documents(tier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = {"plugins": [{"name": name} for name in ("priority", "gang", "predicates")]}
    config = yaml.safe_dump({"actions": "enqueue, allocate, backfill", "tiers": [first, *tier]})
    container = {
        "name": "scheduler",
        "image": _IMAGE,
        "command": [*_COMMAND, "--schedule-period=200ms"],
        "volumeMounts": [{"name": "conf", "mountPath": "/conf"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "conf", "configMap": {"name": _CONFIG}}]}
    meta = {"namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": _CONFIG}}
        | {"data": {"volcano-scheduler.conf": config}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "volcano-scheduler"}, "spec": spec},
    ]


def _create_when_possible(rig: Rig, document: dict[str, Any]) -> None:
    """A pod is refused before its namespace has its service account."""
    text = json.dumps(document)
    wait_for(
        f"{document['kind']} to be created",
        lambda: rig.kubectl("apply", "-f", "-", input=text, check=False),
        seconds=30,
    )


def _has_opened_queue(rig: Rig) -> bool:
    """Volcano's scheduler makes the queue, and its controllers, which are not here, open it."""
    opened = json.dumps({"status": {"state": "Open"}})
    words = [
        "patch",
        "queues.scheduling.volcano.sh",
        "default",
        "--subresource=status",
        "--type=merge",
        f"--patch={opened}",
    ]
    return bool(rig.kubectl(*words, check=False))

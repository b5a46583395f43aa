"""Deployments of the end-to-end tests: kubelet may fail their pods, and new ones take their place."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tests.e2e import pods
from tests.rig import Rig
from tests.rig.waiting import wait_for


def create(rig: Rig, name: str, replicas: int, pod: dict[str, Any]) -> list[str]:
    """A Deployment of pods like this one. Returns their names when all of them run."""
    labels = {"app": name}
    annotations = pod["metadata"].get("annotations", {})
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    rig.kubectl("create", "-f", "-", input=json.dumps(deployment))
    return wait_replaced(rig, name, replicas, [])


def delete_all(rig: Rig) -> None:
    """With their pods."""
    rig.kubectl("delete", "deployments", "--all", "--namespace=default", "--cascade=foreground", "--timeout=60s")


def wait_replaced(rig: Rig, name: str, replicas: int, old: Sequence[str]) -> list[str]:
    def running() -> list[str]:
        found = [pod["metadata"]["name"] for pod in _pods_of(rig, name) if pod["status"]["phase"] == "Running"]
        return [each for each in found if each not in old] if len(set(found) - set(old)) == replicas else []

    return wait_for(f"{replicas} pods of {name} to run", running, seconds=120, every=0.3)


def containers(rig: Rig, name: str) -> set[str]:
    """The ids of the containers that run for a Deployment."""
    return set(_running(_pods_of(rig, name)))


def wait_back_or_replaced(rig: Rig, name: str, ended: set[str]) -> list[str]:
    """The names of as many pods as had these containers, which have ended: pods with a new container, or new ones for
    those that kubelet has failed with a text."""

    def back() -> list[str]:
        listed = _pods_of(rig, name)
        running = [pod for container, pod in _running(listed).items() if container not in ended]
        told = [pod["metadata"]["name"] for pod in listed if has_failed(pod)]
        return running if len(running) == len(ended) and len(running) + len(told) == len(listed) else []

    return wait_for(f"{len(ended)} pods of {name} to be back or replaced", back, seconds=120, every=0.3)


def _pods_of(rig: Rig, name: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(rig.kubectl("get", "pods", f"--selector=app={name}", "-ojson"))["items"]
    return listed


def _running(listed: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The names of pods that run, by the ids of their containers."""
    return {
        status["containerID"]: pod["metadata"]["name"]
        for pod in listed
        for status in pod["status"].get("containerStatuses", [])
        if pod["status"]["phase"] == "Running" and "running" in status["state"]
    }


def wait_failed(rig: Rig, names: Iterable[str]) -> None:
    """Wait until kubelet has failed these pods, and said why."""
    wanted = list(names)

    def told() -> bool:
        return all(has_failed(pods.get(rig, name)) for name in wanted)

    wait_for(f"kubelet to fail {', '.join(wanted)}", told, seconds=60, every=0.3)


def has_failed(pod: dict[str, Any]) -> bool:
    """Whether kubelet has failed it, with a text that names what is missing."""
    resources = {name for container in pod["spec"]["containers"] for name in container["resources"]["limits"]}
    status = pod["status"]
    is_named = any(resource in status.get("message", "") for resource in resources)
    return status.get("reason") == "UnexpectedAdmissionError" and is_named

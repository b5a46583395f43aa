"""The workloads that the originals' guides wrap around their sample pods."""

from collections.abc import Mapping
from typing import Any


def deployment_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A Deployment of one such pod, selected by its labels."""
    labels = pod["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": pod["metadata"], "spec": spec}


def job_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A Job that runs such a pod once."""
    spec = {"template": {"spec": pod["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": pod["metadata"], "spec": spec}

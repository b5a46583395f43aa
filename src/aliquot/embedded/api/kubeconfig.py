"""The kubeconfig with which kubectl and other clients reach the embedded cluster."""

from pathlib import Path

import yaml

from aliquot.embedded.api.objects import Object

NAME = "aliquot"


def kubeconfig(url: str, token: str = "") -> Object:
    """kubectl sends a token only over TLS, but whatever stands in the address."""
    if token:
        url = url.replace("://", f"://token:{token}@", 1)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url}}],
        "users": [{"name": NAME, "user": {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }


def write(url: str, path: Path, token: str = "") -> None:
    """Replaces the file in one step, so that nobody reads half of one."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(yaml.safe_dump(kubeconfig(url, token), sort_keys=False), encoding="utf-8")
    unfinished.replace(path)

"""The kubeconfig of the embedded cluster."""

from pathlib import Path

import yaml

from aliquot.apiserver.objects import Object

NAME = "aliquot"


def kubeconfig(url: str, token: str = "") -> Object:
    """The address with the token as password: kubectl sends tokens only over TLS, but it sends this."""
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
    """Replaces the file atomically."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(yaml.safe_dump(kubeconfig(url, token), sort_keys=False), encoding="utf-8")
    unfinished.replace(path)

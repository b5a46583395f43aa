"""How to reach an API server: a kubeconfig, or the service account of the pod we run in."""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aliquot.errors import BadConfig

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    """Where the API server is and what proves who we are. A token file is read again for every request."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None

    def headers(self) -> dict[str, str]:
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def find(kubeconfig: str | None) -> Access:
    """By the path given, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        return from_kubeconfig(Path(path))
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return from_kubeconfig(home)
    raise BadConfig("no way to an API server: give --kubeconfig, set KUBECONFIG, or run in a pod")


def in_cluster(account: Path = _SERVICE_ACCOUNT) -> Access:
    """By the service account of the pod that we run in. Raises BadConfig that names the missing piece."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = account / "token"
    if not token_file.exists():
        raise BadConfig(f"{token_file} is missing: does the pod set automountServiceAccountToken: false?")
    try:
        tls = _trusting((account / "ca.crt").read_text())
    except (OSError, ValueError) as error:
        raise BadConfig(f"{account / 'ca.crt'} cannot be used: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server, tls, token_file=token_file)


def from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig file. Raises BadConfig that names the missing piece."""
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"]).get("user") or {}
        server = str(cluster["server"]).rstrip("/")
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise BadConfig(f"kubeconfig {path} cannot be used: {type(error).__name__}: {error}") from error
    if not server.startswith(("http://", "https://")):
        raise BadConfig(f"kubeconfig {path}: server {server!r} must start with https:// or http://")
    if "exec" in user or "auth-provider" in user:
        raise BadConfig(
            f"kubeconfig {path}: exec and auth-provider plug-ins are not supported; use a token or certificate"
        )
    tls = _tls(path.parent, cluster, user) if server.startswith("https:") else None
    token_file = path.parent / user["tokenFile"] if "tokenFile" in user else None
    return Access(server, tls, user.get("token"), token_file)


def _named(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry.get("name") == name:
            return dict(entry)
    raise KeyError(f"{section} has no {name!r}")


def _trusting(authority: str | None) -> ssl.SSLContext:
    """A context that trusts the cluster's own authority and no other; without one, the machine's.

    Python 3.13 began to refuse authorities without a key identifier, which many clusters have.
    """
    if authority == "":
        raise ValueError("the authority is empty")
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _tls(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    try:
        authority = _pem(folder, cluster, "certificate-authority")
        context = _trusting(None if authority is None else authority.decode())
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = (_pem(folder, user, name) for name in ("client-certificate", "client-key"))
        if certificate and key:
            _load_client_certificate(context, certificate + b"\n" + key)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise BadConfig(f"kubeconfig in {folder}: a certificate cannot be used: {error}") from error
    return context


def _pem(folder: Path, section: dict[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return (folder / section[name]).read_bytes() if name in section else None


def _load_client_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """OpenSSL reads a client certificate only from a file; it lives as long as this call, readable by us alone."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)

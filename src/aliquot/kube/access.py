"""How to reach an API server: a kubeconfig, or the service account of the pod we run in."""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from aliquot.errors import BadConfig
from aliquot.kube.exec_plugin import Credential, ExecPlugin
from aliquot.kube.exec_plugin import read as read_plugin
from aliquot.plain import why

_NOT_FOR_USERS = {
    "auth-provider": "use exec, a token or a certificate",
    "username": "use exec, a token or a certificate",
    "as": "use a user of its own",
    "as-uid": "use a user of its own",
    "as-groups": "use a user of its own",
    "as-user-extra": "use a user of its own",
}
_NOT_FOR_CLUSTERS = {"proxy-url": "Aliquot must reach the API server directly"}
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    """The address of the API server and our credentials. A token file is read again for every request."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None
    plugin: ExecPlugin | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the address."""
    namespace: str = ""
    """The namespace of the kubeconfig's context, if it names one."""

    def headers(self, credential: Credential | None = None) -> dict[str, str]:
        """The headers of a request, with the credential of an exec plugin if there is one."""
        token = self.current_token() or (credential.token if credential else None)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def current_token(self) -> str | None:
        """The token of a file as it is now, or one of the kubeconfig's own. Raises OSError."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def present(self, credential: Credential) -> None:
        """Use a plugin's certificate for every new connection. Raises ValueError and ssl.SSLError."""
        if self.tls is None:
            raise ValueError("a certificate needs a server with https")
        _load_client_certificate(self.tls, credential.certificate)


def find(kubeconfig: str | None, context: str = "", *, server: str = "", as_pod: bool = False) -> Access:
    """The access by `kubeconfig`, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    `server` overrides their address, and is enough without them. `as_pod` uses the service account only. Raises
    BadConfig.
    """
    if as_pod and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise BadConfig("not running in a pod with a service account: KUBERNETES_SERVICE_HOST is not set")
    found = in_cluster() if as_pod else _found(kubeconfig, context)
    if server:
        return _at(server.rstrip("/"), found)
    if found is None:
        raise BadConfig("no API server to talk to: name a kubeconfig, set KUBECONFIG, or run in a pod")
    return found


def _found(kubeconfig: str | None, context: str) -> Access | None:
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig), context=context)
    listed = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if listed:
        return from_kubeconfig(*listed, context=context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster()
    home = Path.home() / ".kube" / "config"
    return from_kubeconfig(home, context=context) if home.exists() else None


def _at(server: str, found: Access | None) -> Access:
    if not server.startswith(("http://", "https://")):
        server = f"http://{server}"  # as Kubernetes' own clients read an address without a scheme
    access = replace(found, server=server) if found else Access(server)
    if server.startswith("http:"):
        return replace(access, tls=None)
    return access if access.tls else replace(access, tls=trusting(None))


def in_cluster(account: Path = _SERVICE_ACCOUNT) -> Access:
    """The access by the service account of our own pod. Raises BadConfig that names what is missing."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = account / "token"
    if not token_file.exists():
        raise BadConfig(f"{token_file} is missing: does the pod set automountServiceAccountToken: false?")
    try:
        tls = trusting((account / "ca.crt").read_text())
    except (OSError, ValueError) as error:
        raise BadConfig(f"{account / 'ca.crt'} cannot be used: {why(error)}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server, tls, token_file=token_file)


def from_kubeconfig(*paths: Path, context: str = "") -> Access:
    """The access by a context of kubeconfig files, by default the current one. The first file that has an entry wins.

    Raises BadConfig that names what is missing.
    """
    shown = os.pathsep.join(map(str, paths))
    try:
        files = _read(paths)
        chosen = context or next(filter(None, (config.get("current-context") for _, config in files)), "")
        where = _named(files, "contexts", chosen)[1]["context"]
        cluster_folder, cluster_entry = _named(files, "clusters", where["cluster"])
        user_folder, user_entry = _named(files, "users", where["user"])
        cluster, user = cluster_entry["cluster"], user_entry.get("user") or {}
        server = str(cluster["server"]).rstrip("/")
        _refuse_unknown(cluster, _NOT_FOR_CLUSTERS)
        _refuse_unknown(user, _NOT_FOR_USERS)
        plugin = read_plugin(user["exec"], user_folder, {**cluster, "server": server}) if "exec" in user else None
    except (OSError, yaml.YAMLError, KeyError, UnicodeDecodeError) as error:
        raise BadConfig(f"kubeconfig {shown} cannot be used: {why(error)}") from error
    except (AttributeError, TypeError) as error:
        raise BadConfig(f"kubeconfig {shown} cannot be used: it is not a kubeconfig") from error
    except BadConfig as error:
        raise BadConfig(f"kubeconfig {shown}: {error}") from error
    if not server.startswith(("http://", "https://")):
        raise BadConfig(f"kubeconfig {shown}: server {server!r} must start with https:// or http://")
    tls = _tls(cluster_folder, cluster, user_folder, user) if server.startswith("https:") else None
    name = cluster.get("tls-server-name")
    if tls and name and not _is_server_name(tls, name):
        raise BadConfig(f"kubeconfig {shown}: tls-server-name {name!r} is not the name of a server")
    token_file = user_folder / user["tokenFile"] if "tokenFile" in user else None
    return Access(server, tls, user.get("token"), token_file, plugin, name, where.get("namespace") or "")


def _read(paths: tuple[Path, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """Each file's folder and content. Of several files, missing ones are skipped, as kubectl does."""
    there = [path for path in paths if path.exists()] if len(paths) > 1 else paths
    return [(path.parent, yaml.safe_load(path.read_text())) for path in there]


def _named(files: list[tuple[Path, dict[str, Any]]], section: str, name: str) -> tuple[Path, dict[str, Any]]:
    """The entry, and the folder that its relative paths start from. Raises BadConfig."""
    for folder, config in files:
        for entry in config.get(section) or ():
            if entry.get("name") == name:
                return folder, dict(entry)
    raise BadConfig(f"{section} has no {name!r}")


def _refuse_unknown(section: dict[str, Any], fields: dict[str, str]) -> None:
    """Raises BadConfig for a field that we do not support: to ignore it would mean another user or another route."""
    for field, instead in fields.items():
        if section.get(field):
            raise BadConfig(f"{field} is not supported; {instead}")


def trusting(authority: str | None) -> ssl.SSLContext:
    """A context that trusts only the cluster's own authority, or without one those of this machine.

    Python 3.13 and later refuse authorities without a key identifier. Many clusters have such an authority.
    """
    if authority == "":
        raise ValueError("the authority is empty")
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _tls(folder: Path, cluster: dict[str, Any], user_folder: Path, user: dict[str, Any]) -> ssl.SSLContext:
    try:
        authority = _pem(folder, cluster, "certificate-authority")
        context = trusting(None if authority is None else authority.decode())
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = (_pem(user_folder, user, name) for name in ("client-certificate", "client-key"))
        if bool(certificate) != bool(key):
            raise ValueError("client-certificate and client-key must be set together")
        if certificate and key:
            _load_client_certificate(context, certificate + b"\n" + key)
    except (OSError, ValueError) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        raise BadConfig(f"kubeconfig in {folder}: a certificate cannot be used: {where}{why(error)}") from error
    return context


def _is_server_name(context: ssl.SSLContext, name: object) -> bool:
    """Whether a handshake can ask for it. asyncio would leave a socket open for each connection with another one."""
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _pem(folder: Path, section: dict[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return (folder / section[name]).read_bytes() if name in section else None


def _load_client_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """OpenSSL reads a client certificate only from a file. The file exists during this call, readable by us alone."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)

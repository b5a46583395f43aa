"""Certificates, keys and kubeconfigs of one cluster: every program has an identity of its own."""

import base64
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What kubelet serves with, and who it is for the API server."""

    server: Identity
    client: Identity


class Certificates:
    """One certificate authority for the cluster, one for the front proxy of aggregated APIs."""

    def __init__(self, folder: Path, *api_addresses: str) -> None:
        """`api_addresses` are further ones at which the API server is reached: a node's, that of its Service."""
        folder.mkdir()
        self._folder = folder
        self._cluster = trustme.CA()
        self._front_proxy = trustme.CA()
        self.authority = folder / "ca.crt"
        self.front_proxy_authority = folder / "front-proxy-ca.crt"
        self._cluster.cert_pem.write_to_path(str(self.authority))
        self._front_proxy.cert_pem.write_to_path(str(self.front_proxy_authority))

        self.loopback_server = self._server("loopback", "localhost", "127.0.0.1", *api_addresses)
        self.admin = self._client("admin", user="admin", group="system:masters")
        self.controller_manager = self._client("controller-manager", user="system:kube-controller-manager")
        self.scheduler = self._client("scheduler", user="system:kube-scheduler")
        self.apiserver_to_kubelet = self._client("apiserver-to-kubelet", user="kube-apiserver", group="system:masters")
        self.front_proxy = self._issue(self._front_proxy, "front-proxy", "front-proxy.rig", user="front-proxy")
        self.service_accounts = self._server("service-accounts", "service-accounts.rig").key

    def of_node(self, name: str, address: str) -> NodeIdentity:
        server = self._server(f"{name}-server", name, address)
        return NodeIdentity(server, self._client(name, user=f"system:node:{name}", group="system:nodes"))

    def front_proxy_client(self, user: str) -> Identity:
        """A certificate from the front proxy's authority for another user."""
        return self._issue(self._front_proxy, user, f"{user}.client.rig", user=user)

    def new_front_proxy(self) -> tuple[bytes, Identity]:
        """Another authority for the front proxy, and the front proxy's certificate from it. Nobody uses them yet."""
        authority = trustme.CA()
        return authority.cert_pem.bytes(), self._issue(
            authority, "new-front-proxy", "front-proxy.rig", user="front-proxy"
        )

    def kubeconfig(self, path: Path, *, server: str, identity: Identity | None = None, token: str = "") -> Path:
        """A kubeconfig that needs no other file, for an identity or for a service account's token."""
        if identity is None:
            user = {"token": token}
        else:
            user = {
                "client-certificate-data": _encoded(identity.certificate),
                "client-key-data": _encoded(identity.key),
            }
        cluster = {"server": server, "certificate-authority-data": _encoded(self.authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": "rig", "user": user}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
            "current-context": "rig",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def _server(self, name: str, *hosts: str) -> Identity:
        return self._issue(self._cluster, name, *hosts)

    def _client(self, name: str, *, user: str, group: str | None = None) -> Identity:
        return self._issue(self._cluster, name, f"{name}.client.rig", user=user, group=group)

    def _issue(
        self, authority: trustme.CA, name: str, *hosts: str, user: str | None = None, group: str | None = None
    ) -> Identity:
        issued = authority.issue_cert(*hosts, common_name=user, organization_name=group)
        identity = Identity(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        identity.key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(identity.key))
        identity.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return identity


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()

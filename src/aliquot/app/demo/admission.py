"""The demo's service accounts, and the admission policies that let only these accounts write placements."""

from typing import Any

from aliquot.control.admission import ACTIONS, manifests
from aliquot.dialects import Dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.identity import account
from aliquot.kube import CONFIG_MAPS, Access, Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object
from aliquot.model.admission import AGENT_ACCOUNT, SERVER_ACCOUNT, WRITERS_MAP

_ADMISSION = "apis/admissionregistration.k8s.io/v1"
_KINDS: dict[str, ApiResource[Any]] = {
    "ValidatingAdmissionPolicy": ApiResource(_ADMISSION, "validatingadmissionpolicies", Object, namespaced=False),
    "ValidatingAdmissionPolicyBinding": ApiResource(
        _ADMISSION, "validatingadmissionpolicybindings", Object, namespaced=False
    ),
}
_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}]
"""The demo has no RBAC roles: only the admission policies distinguish its accounts."""

SERVER, AGENT = SERVER_ACCOUNT, AGENT_ACCOUNT
NODES = "hollow-nodes"
"""The account of all hollow nodes: their kubelets and everything else that is simulated there."""


def access(cluster: EmbeddedCluster, namespace: str, name: str, node: str = "") -> Access:
    """Access to the cluster as one of the demo's accounts. With `node`, the token is bound to that node."""
    return Access(cluster.url, token=cluster.users.add(account(namespace, name), rules=_EVERYTHING, node=node))


async def install(client: Client, dialects: Dialects, namespace: str) -> None:
    """Make the API server reject stale leaders, and placements that other accounts write."""
    writers = "\n".join(account(namespace, name) for name in (SERVER, AGENT, NODES))
    listed = {"metadata": {"name": WRITERS_MAP, "namespace": namespace}, "data": {"aliquot": writers}}
    await client.create(CONFIG_MAPS, listed, namespace)
    for manifest in manifests(dialects, namespace, ACTIONS["Deny"]):
        await client.create(_KINDS[manifest["kind"]], manifest)

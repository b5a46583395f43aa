"""Who is who in the demo, and the admission policies that keep everybody else from writing placements."""

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
"""The demo has no roles: only the policies tell its accounts apart."""

SERVER, AGENT = SERVER_ACCOUNT, AGENT_ACCOUNT
NODES = "hollow-nodes"
"""The kubelets of all hollow nodes, and what is simulated beside them."""


def access(cluster: EmbeddedCluster, namespace: str, name: str, node: str = "") -> Access:
    """To the cluster, as one of the demo's accounts; with a token that is bound to a node, if one is named."""
    return Access(cluster.url, token=cluster.users.add(account(namespace, name), rules=_EVERYTHING, node=node))


async def install(client: Client, dialects: Dialects, namespace: str) -> None:
    """From now on a stale leader is refused, and so is a placement that anybody but Aliquot's accounts writes."""
    writers = "\n".join(account(namespace, name) for name in (SERVER, AGENT, NODES))
    listed = {"metadata": {"name": WRITERS_MAP, "namespace": namespace}, "data": {"aliquot": writers}}
    await client.create(CONFIG_MAPS, listed, namespace)
    for manifest in manifests(dialects, namespace, ACTIONS["Deny"]):
        await client.create(_KINDS[manifest["kind"]], manifest)

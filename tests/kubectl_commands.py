"""Every command of our kubectl plug-ins, and what an admin and a tenant of one namespace learn from it.

The list is the same for the demo and for a real cluster. Each has a node with two cards of 15 GiB that are sold by
gpushare, these pods and this quota.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aliquot.kubectl import inspect_gpushare
from tests.integration.kubectl.command import gpu, run_to_end


def tenant_of(namespace: str) -> str:
    """Manifests of somebody who sees one namespace, and no node."""
    return f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: tenant, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: tenant, namespace: {namespace}}}
rules: [{{apiGroups: [""], resources: [pods, events], verbs: [get, list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: tenant, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}
subjects: [{{kind: ServiceAccount, name: tenant, namespace: {namespace}}}]
"""


PODS = {("default", "seen"): 3, ("others", "neighbour"): 2, ("default", "waits"): 900}
"""Units by namespace and name. The first two run on one card, the last one waits."""
QUOTAS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "gpuquota", "namespace": "kube-system"},
    "data": {"gpu_quota": json.dumps({"others": {"quota": {"T4": 2}}})},
}

Person = Literal["admin", "tenant"]


@dataclass(frozen=True)
class Command:
    """NODE, CARD and UUID stand for where pod `seen` runs, FOLDER for one with the manifest of a pod `next`."""

    words: str
    admin: str
    """A pattern that a line has, of either output."""
    tenant: str
    tenants_code: int = 0


_NEEDS_NODES = r"resources: \[nodes\], verbs: \[list\]"
_NEVER = "^default/waits waits. Never as things are: no node's cards can hold the pod even when empty"
_WAITS = "^1 +waits +0 .* 900 units of memory of 1 card$"
_COMPLETES = "^complete -o default -F _kubectl_gpu kubectl-gpu$"
_FORBIDDEN = '^error: nodes "NODE" is forbidden'
COMMANDS = (
    Command("gpu nodes", r"^NODE +Ready +2 +17% +5\.0/30\.0 +2 ", "^error: you may not list nodes", 1),
    Command("gpu pods", r"^seen +Running +NODE +CARD +0% +3\.0 ", r"^seen +Running +NODE +UUID +0% +3\.0 "),
    Command("gpu top", r"^NODE +CARD .* 15\.0 .* 2 +33%", "^error: you may not list nodes", 1),
    Command("gpu top pods", r"^default +seen .* 3\.0 ", r"^default +seen .* 3\.0 "),
    Command(
        "gpu explain seen",
        r"^  container main: 3,072 MiB of card CARD \(Tesla T4\), UUID$",
        r"^default/seen\. Placed: the pod is bound to NODE$",
    ),
    Command("gpu explain waits", _NEVER, _NEVER),
    Command("gpu whatif -f FOLDER/next.json", "^next +NODE +CARD +Tesla T4$", _NEEDS_NODES, 1),
    Command("gpu quota show -n others", r"^others +T4 +cards +0\.1333 +2 +7% ", "^error: pods is forbidden", 1),
    Command("gpu quota show", "^no quota limits namespace default$", "^error: you may not read the quotas", 1),
    Command("gpu waste", r"^seen +NODE +0\.20 .* 3\.0 ", r"^seen +NODE .* 3\.0 "),
    Command("gpu queue", _WAITS, _WAITS),
    Command("gpu doctor", "^0 error, ", "^UNKNOWN agents: you may not read nodes and leases$"),
    Command("gpu dump FOLDER/dump.tar.gz", r"dump\.tar\.gz has [1-9]", r"dump\.tar\.gz has 0 nodes, 2 pods and "),
    Command("gpu completion bash", _COMPLETES, _COMPLETES),
    Command("gpu cordon NODE/CARD", r"^card CARD of node NODE \(Tesla T4\) is cordoned now$", _FORBIDDEN, 1),
    Command("gpu uncordon NODE/CARD", "^card CARD .* is not cordoned by a person now$", _FORBIDDEN, 1),
    Command("inspect gpushare", r"^NODE +\S+ .* 5/30 *$", "^Failed due to .*nodes is forbidden", 1),
)


@dataclass(frozen=True)
class Place:
    """Where pod `seen` runs, and the folder of a person's files."""

    node: str
    card: int
    uuid: str
    folder: Path

    def wrong(self, command: Command, person: Person) -> str:
        """What is wrong with the exit code and the two outputs of a command; empty if nothing is. The variable
        KUBECONFIG says whose they are."""
        program, *words = self._filled(command.words).split()
        ended = gpu(*words) if program == "gpu" else run_to_end(inspect_gpushare.main, *words[1:])
        text = ended.out + ended.err
        pattern, code = (command.admin, 0) if person == "admin" else (command.tenant, command.tenants_code)
        faults = [
            f"exit code {ended.code}" if ended.code != code else "",
            "a pod of others" if person == "tenant" and "neighbour" in text else "",
            "" if re.search(self._filled(pattern), text, re.MULTILINE) else f"no line {pattern!r}",
        ]
        return f"{', '.join(filter(None, faults))} in: {text}" if any(faults) else ""

    def _filled(self, text: str) -> str:
        names = {"NODE": self.node, "CARD": str(self.card), "UUID": self.uuid, "FOLDER": str(self.folder)}
        for name, value in names.items():
            text = text.replace(name, value)
        return text

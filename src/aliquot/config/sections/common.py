"""Keys that server and agent share: logs, the API server, and the prefixes of dialects."""

from typing import Annotated, Literal

from aliquot.config.keys import Key, Section
from aliquot.kube import Access, find


class LogSection(Section, frozen=True):
    """Logs"""

    level: Annotated[Literal["debug", "info", "warning", "error"], Key("Lowest level that is logged.", live=True)] = (
        "info"
    )


class AgentKubernetesSection(Section, frozen=True):
    """The API server"""

    kubeconfig: Annotated[
        str,
        Key(
            "Path of the kubeconfig.",
            flag="--kubeconfig",
            metavar="FILE",
            default="$KUBECONFIG, the pod's service account, ~/.kube/config",
        ),
    ] = ""
    context: Annotated[
        str, Key("Context of the kubeconfig to use.", flag="--context", default="the current context")
    ] = ""
    as_pod: Annotated[bool, Key("Use the pod's service account even if there is a kubeconfig.", flag="--as-pod")] = (
        False
    )

    def access(self) -> Access:
        """Raises BadConfig."""
        return find(self.kubeconfig or None, self.context, as_pod=self.as_pod)


class KubernetesSection(AgentKubernetesSection, frozen=True):
    """The API server"""

    server: Annotated[
        str,
        Key(
            "Address of the API server; overrides the kubeconfig's.", flag="--master", default="the kubeconfig's server"
        ),
    ] = ""

    def access(self) -> Access:
        """Raises BadConfig."""
        return find(self.kubeconfig or None, self.context, server=self.server, as_pod=self.as_pod)


Prefixes = Annotated[
    dict[str, str],
    Key(
        "Prefix of a dialect's resource and annotation names, such as tencent=gpu.example.com.",
        flag="--prefix",
        metavar="DIALECT=PREFIX",
        default="each dialect's own prefix",
    ),
]

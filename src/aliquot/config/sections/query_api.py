"""Keys about the query API: its Service, its certificate, and its APIServices."""

from typing import Annotated

from msgspec import Meta

from aliquot.config.keys import Key, Section
from aliquot.config.sections.value_types import Name, OptionalName

API_SERVICES = ("v1alpha1.metrics.nvidia.com", "v1.nvidia-gpu-scheduler", "v1alpha1.gpu.aliquot.io")


class QueryApiSection(Section, frozen=True):
    """Query API"""

    enabled: Annotated[
        bool,
        Key(
            "Serve gpuinfos, podresources and podgpus as objects of the Kubernetes API, on the nvidia endpoint's port, "
            "which then speaks only TLS (docs/query-api.md)."
        ),
    ] = False
    verbs: Annotated[
        bool, Key("Serve the scheduler's verbs, too: schedule/filter, prioritize and preempt of the nvidia endpoint.")
    ] = True
    service: Annotated[Name, Key("Service that the APIServices name. The certificate is for its name.")] = (
        "nvidia-gpu-scheduler"
    )
    namespace: Annotated[Name, Key("Namespace of the Service and the Secret.")] = "kube-system"
    secret: Annotated[
        OptionalName,
        Key(
            "Secret where the server keeps the CA and the certificate that it makes, if listen.tls names none.",
            default="the name of the Service",
        ),
    ] = ""
    api_services: Annotated[
        tuple[str, ...],
        Key(
            "APIServices whose caBundle the server keeps up to date, if they point to the Service.",
            metavar="NAME",
        ),
    ] = API_SERVICES
    ca_file: Annotated[
        str,
        Key(
            "With listen.tls: CA certificates to write into caBundle.",
            metavar="FILE",
            default="others write caBundle, such as cert-manager",
        ),
    ] = ""
    certificate_days: Annotated[
        int,
        Meta(ge=1, le=3650),
        Key(
            "Days that the server's own certificate is valid. The server renews it when a third is left. Its CA is "
            "valid ten times as long."
        ),
    ] = 365

    @property
    def host(self) -> str:
        """The name under which the API server calls."""
        return f"{self.service}.{self.namespace}.svc"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints whose ports have TLS and callers of this API."""
        return ("nvidia",) if self.enabled else ()

"""Keys about the server's ports: address, limits, TLS."""

from typing import Annotated, Literal

from msgspec import Meta

from aliquot.config.addresses import is_address, is_loopback
from aliquot.config.keys import Key, Section
from aliquot.config.sections.value_types import Address, Port, Seconds


class LimitsSection(Section, frozen=True):
    """Listening"""

    body_mb: Annotated[
        int,
        Meta(ge=1, le=4096),
        Key(
            "Maximum size of a request body in MB. A call with 5,000 whole nodes has about 63 MB.",
            flag="--limit-body-mb",
        ),
    ] = 128
    bodies_mb: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key(
            "Maximum total size in MB of all request bodies and answers in progress on a port.",
            flag="--limit-bodies-mb",
        ),
    ] = 256
    seconds: Annotated[
        Seconds,
        Key(
            "Seconds that a call may take, from its first line to the answer. Keep it below the scheduler's timeout.",
            flag="--limit-seconds",
        ),
    ] = 4.5
    concurrency: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key("Maximum concurrent calls per port; /healthz and /readyz do not count.", flag="--limit-concurrency"),
    ] = 512
    connections: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key(
            "Maximum connections per port. Beyond it, the server closes the connection that has been idle longest.",
            flag="--limit-connections",
        ),
    ] = 1024


class TlsSection(Section, frozen=True):
    """Listening"""

    cert_file: Annotated[
        str,
        Key(
            "Certificate with its chain, for TLS on every port. The server reloads changed files within two seconds.",
            flag="--tls-cert-file",
            metavar="FILE",
            default="no TLS",
        ),
    ] = ""
    key_file: Annotated[str, Key("Private key of the certificate.", flag="--tls-key-file", metavar="FILE")] = ""
    client_ca_file: Annotated[
        str,
        Key(
            "CA certificates that sign client certificates. A certificate's subject decides the caller's kind "
            "(docs/callers.md).",
            flag="--tls-client-ca-file",
            metavar="FILE",
            default="callers can only use tokens",
        ),
    ] = ""
    min_version: Annotated[
        Literal["VersionTLS12", "VersionTLS13"], Key("Minimum TLS version.", flag="--tls-min-version")
    ] = "VersionTLS12"


class ListenSection(Section, frozen=True):
    """Listening"""

    address: Annotated[
        Address,
        Key(
            "Address to listen on. On any address other than loopback, only known callers get answers "
            "(docs/callers.md).",
            flag="--address",
            allows=is_address,
        ),
    ] = "127.0.0.1"
    profiling: Annotated[
        bool,
        Key(
            "Serve /debug/pprof/ on the ports of gpushare and elastic, and on endpoints.admission.debugPort.",
            flag="--profiling",
        ),
    ] = False
    health_port: Annotated[
        Port,
        Key(
            "Port of /healthz, /readyz and /metrics on a separate thread, which answers even while the server is "
            "deciding; 0: no such port.",
            flag="--health-port",
        ),
    ] = 12341
    grace: Annotated[Seconds, Key("Seconds that running calls may take to finish when the server stops.")] = 5.0
    limits: LimitsSection = LimitsSection()
    tls: TlsSection = TlsSection()

    def knows_callers(self, answered: str, address: str) -> bool:
        """Whether a port on `address` answers only known callers. `answered` is the endpoint's key `callers`."""
        if answered == "auto":
            return not is_loopback(address) or bool(self.tls.client_ca_file)
        return answered == "known"

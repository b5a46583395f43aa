"""Keys about the Lease and the other servers."""

from typing import Annotated

from msgspec import Meta

from aliquot.config.addresses import is_address
from aliquot.config.keys import Key, Section
from aliquot.config.sections.value_types import Address, Name, Seconds
from aliquot.model.installed_names import SERVER_LEASE, SERVER_NAMESPACE


class LeaseSection(Section, frozen=True):
    """Replicas"""

    enabled: Annotated[
        bool, Key("Elect a leader among several servers with a Lease. If disabled, run only one server.")
    ] = True
    namespace: Annotated[Name, Key("Namespace of the Lease and of the epoch.")] = SERVER_NAMESPACE
    name: Annotated[Name, Key("Name of the Lease. Only its holder commits.")] = SERVER_LEASE
    duration: Annotated[
        int, Meta(ge=1, le=86400), Key("Seconds that other servers wait before they take over a Lease.")
    ] = 15
    renew: Annotated[Seconds, Key("Seconds after which a holder that cannot renew the Lease steps down.")] = 10.0
    retry: Annotated[Seconds, Key("Seconds between two attempts to acquire or renew the Lease.")] = 2.0


class ReplicasSection(Section, frozen=True):
    """Replicas"""

    address: Annotated[
        Address,
        Key(
            "Address at which other replicas reach this server.",
            default="$POD_IP, or else listen.address",
            allows=lambda text: not text or is_address(text),
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Key(
            "With TLS: CA certificates that sign the other replicas' certificates.",
            metavar="FILE",
            default="listen.tls.clientCaFile, or else the system's CA certificates",
        ),
    ] = ""
    token_file: Annotated[
        str,
        Key(
            "With TLS: file with a service account token that this server presents to other replicas instead of its "
            "certificate. The server reads it again for every call.",
            metavar="FILE",
            default="the certificate",
        ),
    ] = ""
    tls_name: Annotated[
        Address,
        Key(
            "With TLS: name that the other replicas' certificates must have. A caller with this name is a replica.",
            default="the address of the replica",
            allows=lambda text: not text or is_address(text),
        ),
    ] = ""

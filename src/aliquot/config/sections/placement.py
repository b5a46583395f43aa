"""Keys about deciding, committing and keeping the cluster state."""

from typing import Annotated

from msgspec import Meta, field

from aliquot.config.keys import Key, Section
from aliquot.config.sections.value_types import Name, Seconds
from aliquot.model.installed_names import QUOTA_KEY, QUOTA_MAP, QUOTA_NAMESPACE


class PoliciesSection(Section, frozen=True):
    """Policies"""

    gpu: Annotated[
        dict[str, str],
        Key(
            "Policy that chooses cards on a node for a dialect's pods: binpack, spread, ... (docs/policies.md). A pod "
            "can choose another.",
            live=True,
            flag="--gpu-policy",
            metavar="DIALECT=POLICY",
            default="each dialect's own policy",
        ),
    ] = field(default_factory=dict)
    node: Annotated[
        dict[str, str],
        Key(
            "Policy that chooses the node for a dialect's pods. A pod can choose another.",
            live=True,
            flag="--node-policy",
            metavar="DIALECT=POLICY",
            default="each dialect's own policy",
        ),
    ] = field(default_factory=dict)


class QuotaSection(Section, frozen=True):
    """Quotas"""

    namespace: Annotated[Name, Key("Namespace of the ConfigMap with the quotas (docs/quota.md).")] = QUOTA_NAMESPACE
    name: Annotated[Name, Key("Name of the ConfigMap with the quotas. If it does not exist, there are no quotas.")] = (
        QUOTA_MAP
    )
    key: Annotated[
        str,
        Meta(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253, description="a valid key of a ConfigMap"),
        Key("Key of that ConfigMap that holds the quotas."),
    ] = QUOTA_KEY
    model_label: Annotated[
        str, Key("Node label that names the node's GPU model.", default="the labels that gpu-admission's versions read")
    ] = ""
    pool_label: Annotated[
        str, Key("Node label that names the node's pool.", default="the labels that gpu-admission's versions read")
    ] = ""


class SearchSection(Section, frozen=True):
    """Deciding"""

    seconds: Annotated[
        float,
        Meta(ge=0.01, le=4),
        Key(
            "Seconds that one decision may search all nodes for a placement of a pod with several GPU containers. "
            "The server answers no other call meanwhile.",
            live=True,
        ),
    ] = 1.0


class CommitSection(Section, frozen=True):
    """Committing"""

    budget: Annotated[
        Seconds,
        Key(
            "Maximum seconds for a Binding request. Keep commit.budget plus commit.look below the scheduler's timeout.",
            live=True,
        ),
    ] = 2.5
    look: Annotated[Seconds, Key("Seconds for reading a pod before or after its Binding.", live=True)] = 1.0
    act_limit: Annotated[
        Seconds,
        Key(
            "Seconds after which an unanswered request can no longer take effect: the API server's own timeout plus a "
            "margin.",
            live=True,
        ),
    ] = 70.0
    claims_per_namespace: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        Key("Maximum number of unbound pods per namespace with reserved or claimed cards.", live=True),
    ] = 500


class AuditSection(Section, frozen=True):
    """Cluster state"""

    seconds: Annotated[
        Seconds, Key("Seconds between two comparisons of the cluster state with the API server.", live=True)
    ] = 60.0


class LateSection(Section, frozen=True):
    """Cluster state"""

    seconds: Annotated[
        Seconds,
        Key("Seconds that a pod bound by another scheduler may wait for room before it fails.", live=True),
    ] = 30.0
    hold: Annotated[
        Seconds,
        Key(
            "Seconds that a reservation lasts for a pod that the scheduler binds itself (filter, vallocate).",
            live=True,
        ),
    ] = 30.0


class DecisionLogSection(Section, frozen=True):
    """Cluster state"""

    file: Annotated[
        str,
        Key(
            "File that records every decision, for `aliquot replay` (docs/decisions.md).",
            metavar="FILE",
            default="no decision log",
        ),
    ] = ""
    mb: Annotated[int, Meta(ge=1, le=65536), Key("Size in MB at which the server starts a new decision log.")] = 64

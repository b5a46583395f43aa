"""The configuration of `aliquot server`: every key, declared once. File, variable, flag and documents follow."""

from typing import Annotated, Literal

from msgspec import field

from aliquot.config.keys import Key, Section
from aliquot.config.sections.common import KubernetesSection, LogSection, Prefixes
from aliquot.config.sections.endpoints import CallersSection, EndpointsSection, VolcanoSection
from aliquot.config.sections.listen import ListenSection
from aliquot.config.sections.metrics import HistorySection, MetricsSection
from aliquot.config.sections.placement import (
    AuditSection,
    CommitSection,
    DecisionLogSection,
    LateSection,
    PoliciesSection,
    QuotaSection,
    SearchSection,
)
from aliquot.config.sections.query_api import QueryApiSection
from aliquot.config.sections.replicas import LeaseSection, ReplicasSection
from aliquot.model import Pod

_DEFAULT_SCHEDULER = "default-scheduler"


class ServerConfig(Section, frozen=True):
    """General"""

    mode: Annotated[
        Literal["active", "observe"],
        Key("`active` places pods. `observe` only reads, and logs where it would have placed them."),
    ] = "active"
    log: LogSection = LogSection()
    kubernetes: KubernetesSection = KubernetesSection()
    listen: ListenSection = ListenSection()
    endpoints: EndpointsSection = EndpointsSection()
    volcano: VolcanoSection = VolcanoSection()
    query_api: QueryApiSection = QueryApiSection()
    callers: CallersSection = field(default_factory=CallersSection)
    schedulers: Annotated[
        str,
        Key(
            "Schedulers whose pods the server binds and reserves cards for: values of schedulerName, separated by "
            "commas, or `*` for all.",
            live=True,
        ),
    ] = "default-scheduler,gpu-scheduler,hami-scheduler,volcano"
    prefixes: Prefixes = field(default_factory=dict)
    compat: Annotated[
        dict[str, str],
        Key(
            "Quirks of the original that an endpoint keeps: maps, bind-faults, reasons, every-node, or all "
            "(docs/endpoints.md).",
            flag="--compat",
            metavar="ENDPOINT=QUIRKS",
        ),
    ] = field(default_factory=dict)
    policies: PoliciesSection = field(default_factory=PoliciesSection)
    quota: QuotaSection = QuotaSection()
    lease: LeaseSection = LeaseSection()
    replicas: ReplicasSection = ReplicasSection()
    search: SearchSection = SearchSection()
    commit: CommitSection = CommitSection()
    audit: AuditSection = AuditSection()
    late: LateSection = LateSection()
    metrics: MetricsSection = MetricsSection()
    history: HistorySection = HistorySection()
    decision_log: DecisionLogSection = DecisionLogSection()

    @property
    def scheduler_names(self) -> frozenset[str]:
        """The names in `schedulers`. Empty if all schedulers are served."""
        names = frozenset(filter(None, (name.strip() for name in self.schedulers.split(","))))
        return frozenset() if "*" in names else names

    def serves(self, pod: Pod) -> bool:
        """Whether the pod belongs to a scheduler that we serve."""
        names = self.scheduler_names
        return not names or (pod.spec.scheduler_name or _DEFAULT_SCHEDULER) in names

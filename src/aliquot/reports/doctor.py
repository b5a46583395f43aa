"""An examination of an installation: what is wrong, and what to do about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aliquot.clock import seconds_of
from aliquot.dialects.node_reading import SERVES
from aliquot.kube.resources import Event, Lease, PolicyBinding
from aliquot.model import Node
from aliquot.model.admission import CARDS_GUARDED, CARDS_HEALTHY, FENCING, FORGERY
from aliquot.model.installed_names import SERVER_LEASE, SERVER_NAMESPACE
from aliquot.model.request import NODE_UNITS
from aliquot.reports.report import Report
from aliquot.reports.scheduler_config import SchedulerConfig
from aliquot.reports.view import ClusterView

OK, UNKNOWN, WARNING, ERROR = "ok", "unknown", "warning", "error"
_SERVER_LEASE = f"{SERVER_NAMESPACE}/{SERVER_LEASE}"
_SHORTEST_TERM = 15.0
"""Seconds: the duration of kube-scheduler's Lease, unless it is configured."""
_MOST = 5
"""Names in one finding."""
_RIVAL = "RivalDevicePlugin"
_FAILED_ADMISSION = "UnexpectedAdmissionError"


class Finding(Report, frozen=True, kw_only=True):
    level: str
    """ok, unknown, warning or error."""
    check: str
    text: str
    remedy: str = ""


class DoctorReport(Report, frozen=True, kw_only=True):
    findings: list[Finding]

    @property
    def worst(self) -> str:
        order = (ERROR, WARNING, UNKNOWN)
        return next((level for level in order if any(f.level == level for f in self.findings)), OK)


@dataclass(frozen=True)
class Facts:
    """What was read besides the view. None: it is unknown, because of what `unread` says."""

    server_lease: Lease | None = None
    may_read_server_lease: bool = True
    schedulers: Sequence[SchedulerConfig] | None = ()
    policies: Sequence[PolicyBinding] | None = ()
    withheld: Sequence[str] | None = ()
    """Rights that the server's account lacks, with the rule to add."""
    unread: str = "you may not read"

    @classmethod
    def unknown(cls) -> "Facts":
        """Of an archive."""
        unread = "the archive does not have"
        return cls(None, may_read_server_lease=False, schedulers=None, policies=None, withheld=None, unread=unread)


def examine(view: ClusterView, facts: Facts) -> DoctorReport:
    """Errors first; a check without a finding is ok."""
    found: list[Finding] = []
    for check, look in _CHECKS.items():
        if unread := [kind for kind in _NEEDS.get(check, ()) if view.lacks(kind)]:
            text = f"{facts.unread} {' and '.join(unread)}"
            found.append(Finding(level=UNKNOWN, check=check, text=text, remedy="the notes name the rights"))
            continue
        own = [Finding(level=level, check=check, text=text, remedy=remedy) for level, text, remedy in look(view, facts)]
        found += own or [Finding(level=OK, check=check, text=_FINE[check])]
    order = (ERROR, WARNING, UNKNOWN, OK)
    return DoctorReport(findings=sorted(found, key=lambda finding: order.index(finding.level)))


_Found = Iterator[tuple[str, str, str]]
"""Level, text and remedy."""


def _server(view: ClusterView, facts: Facts) -> _Found:
    start = (
        "check the server's pods and logs in aliquot-system; if there are none, kubectl apply -f deploy/aliquot.yaml"
    )
    lease = facts.server_lease
    if not facts.may_read_server_lease:
        yield UNKNOWN, f"{facts.unread} the Lease {_SERVER_LEASE}", "ask for get on leases in aliquot-system"
        return
    if lease is None or not lease.spec.holder_identity:
        yield ERROR, f"no server holds the Lease {_SERVER_LEASE}: no pod gets cards", start
        return
    renewed = seconds_of(lease.spec.renew_time)
    silence = view.now - renewed if renewed is not None else None
    if silence is not None and silence > 2 * (lease.spec.lease_duration_seconds or 15):
        yield ERROR, f"the server {lease.spec.holder_identity} has been silent for {silence:.0f} s", start


def _scheduler(view: ClusterView, facts: Facts) -> _Found:
    wire = "name Aliquot as an extender in the scheduler's configuration: deploy/README.md"
    if view.cluster.unplaced:
        pods = [pod.key for pod in view.cluster.unplaced.values()]
        what = f"bound without a placement: {_named(pods)}"
        yield ERROR, f"{what}; their scheduler does not ask Aliquot", f"{wire}; then delete these pods"
    if facts.schedulers is None:
        yield (
            UNKNOWN,
            f"{facts.unread} the ConfigMaps in kube-system",
            "check by hand whether it asks Aliquot",
        )
        return
    for config in facts.schedulers:
        yield from ((level, f"{config.where}: {text}", remedy) for level, text, remedy in config.findings)
    if not facts.schedulers and not view.cluster.unplaced:
        text = "no ConfigMap has a scheduler's configuration; it is probably a file on the control plane"
        yield UNKNOWN, text, f"check on the control plane that kube-scheduler's --config names a file; {wire}"


def _two_schedulers(view: ClusterView, _: Facts) -> _Found:
    """Of replicas only the leader binds, and no replica has the Lease again sooner than the Lease lasts."""
    by_name: dict[str, list[tuple[float, str]]] = {}
    for event in view.events:
        if event.reason == "Scheduled" and event.reporting_instance:
            name, at = event.reporting_component or event.source.component, seconds_of(event.last_seen)
            by_name.setdefault(name, []).append((at or 0.0, event.reporting_instance))
    for name, bindings in by_name.items():
        if both := _at_once(sorted(bindings)):
            text = f"two schedulers are called {name} and bind at the same time: {_named(sorted(both))}"
            yield ERROR, text, "stop one of them, give it a schedulerName of its own, or let them elect a leader"


def _at_once(bindings: Sequence[tuple[float, str]]) -> set[str]:
    """The schedulers that bound between two bindings of another, and that other; empty if none did."""
    last: dict[str, int] = {}
    for place, (at, instance) in enumerate(bindings):
        before = last.get(instance, place)
        between = {other for _, other in bindings[before + 1 : place]}
        if between and at - bindings[before][0] < _SHORTEST_TERM:
            return {instance, *between}
        last[instance] = place
    return set()


def _rights(_: ClusterView, facts: Facts) -> _Found:
    if facts.withheld is None:
        text = f"{facts.unread} the rights of the server's account"
        yield UNKNOWN, text, "ask for create on subjectaccessreviews"
        return
    for right in facts.withheld:
        yield ERROR, f"the server's account {right}", "kubectl apply -f deploy/aliquot.yaml"


def _agents(view: ClusterView, _: Facts) -> _Found:
    log = "read the log of the agent's pod on that node (namespace aliquot-system)"
    silent = sorted(view.nodes.keys() & view.silent_agents)
    if silent:
        yield ERROR, f"the agent is silent on {_named(silent)}: new pods fail to start there", log
    without = [node.key for node in view.nodes.values() if _serves(node) and not view.cluster.cards(node.key).gpus]
    if without:
        yield ERROR, f"labelled for cards, but without cards: {_named(sorted(without))}", f"docs/nodes.md; {log}"
    for name in sorted(view.nodes):
        if why := view.cluster.unread.why(name):
            yield ERROR, f"the cards of node {name} cannot be read: {why}", log
    for pod in view.pods.values():
        if pod.metadata.labels.get("app.kubernetes.io/name") != "aliquot":
            continue
        for status in pod.status.container_statuses or ():
            waiting = status.state.waiting
            if waiting and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
                text = f"pod {pod.key} does not run: {waiting.reason}: {waiting.message}".rstrip(": ")
                yield ERROR, text, f"kubectl -n {pod.metadata.namespace} logs {pod.metadata.name}"


def _serves(node: Node) -> bool:
    return any(key.startswith(SERVES) and value == "true" for key, value in node.metadata.labels.items())


def _preparation(view: ClusterView, _: Facts) -> _Found:
    """Sockets, CDI and the rest of a node: what the agents and kubelets report."""
    for event in _latest(view.events, (_FAILED_ADMISSION,)):
        about = f"{event.involved_object.namespace}/{event.involved_object.name}"
        yield (
            ERROR,
            f"kubelet could not admit pod {about}: {event.message}",
            "docs/operate.md, A container does not start",
        )
    for node in view.nodes.values():
        for condition in node.status.conditions or ():
            if condition.type == CARDS_GUARDED and condition.status == "False":
                text = f"node {node.key}: containers may get cards that Aliquot did not give them: {condition.message}"
                yield WARNING, text, "docs/nodes.md, One way of injection per node"


def _two_plugins(view: ClusterView, _: Facts) -> _Found:
    for event in _latest(view.events, (_RIVAL,)):
        what, colon, remedy = event.message.partition(": ")
        yield ERROR, f"node {event.involved_object.name}: {what}", remedy if colon else "docs/nodes.md"
    for node in view.nodes.values():
        cards = view.cluster.cards(node.key)
        served = {cards.dialects & {"nvidia", "hami"}} if cards.dialects else set()
        offers = str((node.status.allocatable or {}).get("nvidia.com/gpu", 0)) not in ("0", "")
        if cards.gpus and not cards.are_made_up and not cards.observed and served == {frozenset()} and offers:
            text = f"node {node.key} also offers nvidia.com/gpu: another plugin sells Aliquot's cards a second time"
            yield ERROR, text, f"remove that plugin from the node, or label it {SERVES}nvidia=true"


def _units(view: ClusterView, _: Facts) -> _Found:
    by_unit: dict[int, list[str]] = {}
    for name in sorted(view.nodes):
        cards = view.cluster.cards(name)
        if cards.gpus and cards.serves("gpushare") and (cards.registered is None or "gpushare" in cards.registered):
            by_unit.setdefault(cards.unit_mib, []).append(name)
    if len(by_unit) > 1:
        parts = [f"{unit} MiB on {_named(names)}" for unit, names in sorted(by_unit.items())]
        text = f"aliyun.com/gpu-mem counts in different units: {'; '.join(parts)}"
        yield WARNING, text, f"give all agents the same --memory-unit ({' or '.join(map(str, NODE_UNITS))} MiB)"


def _cards(view: ClusterView, _: Facts) -> _Found:
    for name in sorted(view.nodes):
        cards = view.cluster.cards(name)
        for uuid in view.cluster.ledger.oversold(name):
            text = f"card {cards.by_uuid[uuid].index} of node {name} is over-committed: another scheduler sold it, too"
            yield ERROR, text, f"kubectl gpu nodes {name} shows its pods; delete one of them"
        bad = [str(gpu.index) for gpu in cards.gpus if not gpu.healthy]
        if bad:
            said = next((c.message for c in view.nodes[name].status.conditions or () if c.type == CARDS_HEALTHY), "")
            repair = f"repair the card, then kubectl gpu uncordon {name}/{bad[0]} --good"
            yield WARNING, f"node {name}: unhealthy cards: {', '.join(bad)} ({said or 'no reason is given'})", repair


def _quotas(view: ClusterView, _: Facts) -> _Found:
    if view.cluster.quotas.trouble:
        yield ERROR, view.cluster.quotas.trouble, "correct the ConfigMap with the quotas: docs/quota.md"


def _policies(_: ClusterView, facts: Facts) -> _Found:
    install = "aliquot policies | kubectl apply -f -"
    if facts.policies is None:
        yield UNKNOWN, f"{facts.unread} the validatingadmissionpolicybindings", "ask for list on them"
        return
    actions: Mapping[str, Sequence[str]] = {
        policy.metadata.name: policy.spec.validation_actions or () for policy in facts.policies
    }
    if FENCING not in actions:
        yield WARNING, f"{FENCING} is not installed: nothing stops the last write of a former leader", install
    if FORGERY not in actions:
        yield WARNING, f"{FORGERY} is not installed: users may write placements themselves", install
    elif "Deny" not in actions[FORGERY]:
        text = f"{FORGERY} only warns ({', '.join(actions[FORGERY])})"
        yield (
            WARNING,
            text,
            "if the audit log shows no such writes: aliquot policies --forgery Deny | kubectl apply -f -",
        )


def _latest(events: Iterable[Event], reasons: Sequence[str]) -> list[Event]:
    """The last event of each object."""
    found: dict[tuple[str, str, str], Event] = {}
    for event in sorted(events, key=lambda event: event.last_seen):
        if event.reason in reasons:
            about = event.involved_object
            found[(about.kind, about.namespace, about.name)] = event
    return list(found.values())[-_MOST:]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


_CHECKS: Mapping[str, Callable[[ClusterView, Facts], _Found]] = {
    "server": _server,
    "scheduler": _scheduler,
    "two schedulers": _two_schedulers,
    "rights": _rights,
    "agents": _agents,
    "node preparation": _preparation,
    "two plugins": _two_plugins,
    "units": _units,
    "cards": _cards,
    "quotas": _quotas,
    "policies": _policies,
}
_NEEDS: Mapping[str, Sequence[str]] = {
    "scheduler": ("nodes",),
    "two schedulers": ("events",),
    "agents": ("nodes", "leases"),
    "node preparation": ("nodes", "events"),
    "two plugins": ("nodes", "events"),
    "units": ("nodes",),
    "cards": ("nodes", "pods"),
    "quotas": ("configmaps",),
}
"""The kinds of objects without which a check says nothing."""
_FINE = {
    "server": "a server leads",
    "scheduler": "the schedulers ask Aliquot",
    "two schedulers": "every scheduler has a name of its own",
    "rights": "the server has all of its rights",
    "agents": "every agent renews its Lease",
    "node preparation": "neither kubelet nor an agent complains",
    "two plugins": "no resource has two device plugins",
    "units": "all nodes count memory in the same unit",
    "cards": "every card is healthy, and none is over-committed",
    "quotas": "the quotas can be read",
    "policies": "the admission policies are installed",
}

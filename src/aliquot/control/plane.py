"""The control plane: watches the cluster, maintains the cluster state, commits decisions."""

import asyncio

import structlog

from aliquot import metrics
from aliquot.clock import Clock, SystemClock
from aliquot.config.server_tree import ServerConfig
from aliquot.control.audit.audit import Audit
from aliquot.control.inputs.agent_heartbeats import AgentHeartbeats
from aliquot.control.inputs.disruption_budgets import Budgets
from aliquot.control.inputs.past_load import PastLoad
from aliquot.control.inputs.quota_map import QuotaMap
from aliquot.control.inputs.unhealthy_maps import UnhealthyMaps
from aliquot.control.leadership.api_contact import ApiContact
from aliquot.control.leadership.leadership import Leadership, Side
from aliquot.control.leadership.loop_heartbeat import LoopHeartbeat
from aliquot.control.placing.commit import Committer
from aliquot.control.placing.filter_results import FilterResults
from aliquot.control.placing.labels import Labeller
from aliquot.control.placing.late import LatePlacer
from aliquot.control.placing.nominated_victims import NominatedVictims
from aliquot.control.placing.pod_events import PodEvents
from aliquot.control.placing.reservations import Reservations
from aliquot.control.placing.stale_annotations import StaleAnnotations
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.control.requeue.requeuer import Requeuer
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Expired, NodeLost, NodeSeen, PodForgotten, PodSeen
from aliquot.control.state.search_budget import SearchBudget
from aliquot.control.waiting.reasons import WaitingReasons
from aliquot.dialects import Dialects
from aliquot.kube import NODES, PODS, Client, Informer
from aliquot.model import Node, Pod, Request
from aliquot.signals import Signal

_log = structlog.get_logger()
_SETTLE_SECONDS = 1.0
_BY_NODE, _UNBOUND = "node", "unbound"


class ControlPlane:
    """Everything that an endpoint needs. `run` it as a single task; it ends only when cancelled. With a `side`, the
    Lease is renewed there."""

    def __init__(
        self,
        client: Client,
        clock: Clock | None = None,
        dialects: Dialects | None = None,
        settings: ServerConfig | None = None,
        side: Side | None = None,
        identity: str = "",
    ) -> None:
        self.client = client
        self.clock = clock or SystemClock()
        self.settings = settings or ServerConfig()
        self.cluster = ClusterState(dialects, SearchBudget(self.clock, self.settings.search.seconds, self._is_known))
        self.pulse = LoopHeartbeat(self.clock)
        metrics.LOOP_SILENCE.set_function(self.pulse.silence)
        self.leadership = Leadership(client, self.clock, self.settings, self._refresh, side, self.pulse, identity)
        commit = self.settings.commit
        self.transactions = PlacementTransactions(client, self.cluster, self.leadership, self.clock, commit)
        self.committer = Committer(client, self.cluster, self.transactions, self.leadership, commit)
        self.reservations = Reservations(self.cluster, self.leadership, self.clock, commit)
        self.pod_events = PodEvents(client, self.clock)
        self.nodes: Informer[Node] = Informer(client, NODES, self._on_node, clock=self.clock)
        indexes = {_BY_NODE: lambda pod: pod.spec.node_name, _UNBOUND: _unbound}
        self.pods: Informer[Pod] = Informer(client, PODS, self._on_pod, indexes=indexes, clock=self.clock)
        self.late = LatePlacer(
            client,
            self.cluster,
            self.transactions,
            self.nodes.get,
            self.leadership,
            self.pod_events,
            self.clock,
            self.settings.late,
            is_in_sync=lambda: not self.out_of_sync(),
        )
        made = self.reservations.made
        self.stale_annotations = StaleAnnotations(client, self.cluster, self.leadership, self.clock, made)
        self.requeuer = Requeuer(
            client,
            self.cluster,
            self.nodes.get,
            self.pods.with_uid,
            self.leadership,
            self.clock,
            is_in_sync=lambda: not self.out_of_sync(),
            is_served=lambda pod: self.settings.serves(pod),
        )
        self.waiting_reasons = WaitingReasons(
            client,
            self.pod_events,
            self.leadership,
            self.clock,
            is_in_sync=lambda: not self.out_of_sync(),
            is_served=lambda pod: self.settings.serves(pod),
        )
        self.preemptions = NominatedVictims(self.clock)
        self.passes = FilterResults(self.clock)
        self.cluster.freed.subscribe(self.requeuer.opened)
        self.audit = Audit(
            client,
            self.cluster,
            self.nodes,
            self.pods,
            pods_on=self.pods_on,
            is_pending=self.transactions.is_pending,
            clock=self.clock,
        )
        self.quota_map = QuotaMap(client, self.cluster, self.clock, self.settings.quota)
        self.unhealthy_maps = UnhealthyMaps(client, self.cluster, self.clock)
        self.budgets = Budgets(client, self.clock)
        self._labeller = Labeller(client, self.cluster, self.pods, self.leadership, self.clock)
        self.heartbeats = AgentHeartbeats(
            client, self.clock, self.cluster, lambda name: self.nodes.get(name) is not None
        )
        self.past_load = PastLoad(
            self.heartbeats.history, self.pods.with_uid, self.clock, self.settings.history.prometheus
        )
        """The load of cards and pods in the past."""
        self._contact = ApiContact(client, self.clock)
        self.changed: Signal[None] = Signal()
        """Emitted after every pod or node event, and every change of our role."""
        self.touched: Signal[str] = Signal()
        """Emitted with a node's name after an event of the node, or of a pod that is or was bound to it."""
        self.leadership.changed.subscribe(self._on_role)

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            await self.past_load.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pulse.run())
            tasks.create_task(self._contact.run())
            tasks.create_task(self._settle())
            tasks.create_task(self.nodes.run())
            await self.nodes.synced.wait()
            for optional in (self.quota_map, self.unhealthy_maps, self.budgets):
                tasks.create_task(optional.run())
            for optional in (self.quota_map, self.unhealthy_maps, self.budgets):
                await optional.tried.wait()
            # pods after nodes: reading a pod's placement needs the cards of its node
            tasks.create_task(self.pods.run())
            await self.pods.synced.wait()
            _log.info("in sync with the API server", nodes=len(self.nodes.all()), pods=len(self.pods.all()))
            tasks.create_task(self.leadership.run())
            tasks.create_task(self.heartbeats.run())
            tasks.create_task(self.late.run())
            tasks.create_task(self.stale_annotations.run())
            tasks.create_task(self.requeuer.run())
            tasks.create_task(self.audit.run(lambda: self.settings.audit.seconds))
            tasks.create_task(self._labeller.run(lambda: self.settings.audit.seconds))

    def reconfigure(self, settings: ServerConfig) -> None:
        """Apply live settings. Roles and names stay as they were at startup."""
        self.settings = settings
        for component in (self.transactions, self.committer, self.reservations):
            component.reconfigure(settings.commit)
        self.late.reconfigure(settings.late)
        self.cluster.searches.reconfigure(settings.search)

    def out_of_sync(self) -> list[str]:
        """Why our data cannot be trusted; empty when both informer caches are in sync with an API server that
        answers."""
        return [trouble for trouble in (self.nodes.trouble, self.pods.trouble, self._contact.trouble) if trouble]

    def not_ready(self) -> list[str]:
        """Why nothing can be decided now: out of sync, or no server may commit."""
        return self.out_of_sync() + [trouble for trouble in (self.leadership.no_holder(),) if trouble]

    def notes(self) -> list[str]:
        """Our role and degraded features, for people."""
        others = (
            self.heartbeats,
            self.past_load,
            self.quota_map,
            self.unhealthy_maps,
            self.budgets,
            self.cluster.unread,
        )
        return self.leadership.notes() + [note for other in others for note in other.notes()]

    def pod_by_uid(self, uid: str) -> Pod | None:
        return self.pods.with_uid(uid)

    def _is_known(self, request: Request) -> bool:
        """Whether our informer cache has the pod of a request, in its namespace."""
        pod = self.pod_by_uid(request.uid)
        return pod is not None and pod.metadata.namespace == request.namespace

    def pods_on(self, node: str) -> list[Pod]:
        return self.pods.having(_BY_NODE, node)

    def unbound_pods(self) -> list[Pod]:
        """Pods that are not bound, held back by gates or not."""
        return self.pods.having(_UNBOUND, _UNBOUND)

    async def _refresh(self) -> None:
        """Refresh nodes first: reading a pod's placement needs the cards of its node."""
        await self.nodes.refresh()
        await self.pods.refresh()

    def _on_role(self, _: None) -> None:
        """Inherit waiting pods when we start leading; drop reservations when we stop."""
        if self.leadership.may_commit:
            self.requeuer.inherit(self.pods.all())
        else:
            self._follow()
        self.changed.emit(None)

    def _follow(self) -> None:
        """Drop reservations, because no other server knows them. From now on a record on an unplaced pod is another
        leader's, although we took it for its user's."""
        self.cluster.apply(Expired(None))
        for uid in list(self.cluster.unplaced):
            if (pod := self.pods.with_uid(uid)) is not None:
                self.cluster.apply(PodSeen(pod))

    async def _settle(self) -> None:
        while True:
            self.reservations.expire()
            await self.transactions.settle()
            metrics.OPEN_BINDINGS.set(self.transactions.unknown)
            await self.clock.sleep(_SETTLE_SECONDS)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None, "an informer event has an old or a new object"
            self.cluster.apply(NodeLost(old.key))
        elif self.cluster.apply(NodeSeen(new)).changed:
            for pod in self.pods_on(new.key):  # read pods again, with the node's current cards
                self.cluster.apply(PodSeen(pod))
        for name in {node.key for node in (old, new) if node is not None}:
            self.touched.emit(name)
        self.changed.emit(None)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None, "an informer event has an old or a new object"
            self.cluster.apply(PodForgotten(old.metadata.uid))
            self.heartbeats.history.forget_pod(old.metadata.uid)
            self.requeuer.forget(old.metadata.uid)
            self.waiting_reasons.forget(old.metadata.uid)
            self._forget_decisions(old.metadata.uid)
            self.cluster.searches.forget(old.metadata.uid)
        else:
            self.cluster.apply(PodSeen(new))
            self.requeuer.see(new)
            self.waiting_reasons.see(new)
            if new.spec.node_name:
                self._forget_decisions(new.metadata.uid)
        for node in {pod.spec.node_name for pod in (old, new) if pod is not None and pod.spec.node_name}:
            self.touched.emit(node)
        self.changed.emit(None)

    def _forget_decisions(self, uid: str) -> None:
        """Drop the remembered answers of endpoints about a waiting pod."""
        self.preemptions.forget(uid)
        self.passes.forget(uid)


def _unbound(pod: Pod) -> str:
    """Its word in the index."""
    return "" if pod.spec.node_name or pod.metadata.deletion_timestamp or pod.ended else _UNBOUND

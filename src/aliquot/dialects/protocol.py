"""What a dialect declares. Agent, control plane, doors and demo read it and know no vendor's name themselves."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aliquot.model import Node, NodeGpus, Placement, Pod, Reason, Request


class Dialect(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def resource(self) -> str:
        """The extended resource that the node's device plug-in serves."""

    @property
    def socket(self) -> str:
        """File name of the device plug-in's socket, as the original's."""

    @property
    def gpu_policy(self) -> str:
        """The default policy for the choice of a card, by its name in the engine's table."""

    # -- reading what is asked and what there is

    def speaks(self, pod: Pod) -> bool:
        """Whether the pod names a resource of this dialect."""

    def demand(self, pod: Pod) -> Request:
        """What the pod asks for. Raises BadDemand with the field's name and what to write instead."""

    def held(self, pod: Pod) -> Request:
        """What a bound pod holds, counted as the original counts it: it may ask what we would not place."""

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards of a node that publishes no inventory, with ids `node/index`; None if it has none."""

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """The placement in the dialect's own annotations of a bound pod, as its original wrote them."""

    # -- writing

    def annotations(self, request: Request, placement: Placement, cards: NodeGpus, now_ns: int) -> Mapping[str, str]:
        """The dialect's own keys beside `aliquot.io/placement`, exactly as its original writes them at bind."""

    def handed_over(self, pod: Pod) -> bool:
        """Whether the pod already carries the marks of its hand-over."""

    def hand_over_marks(self, now_ns: int) -> Mapping[str, str]:
        """The keys that change when the node has handed the cards to the pod."""

    def words(self, reason: Reason) -> str:
        """A refusal in the original's words, without node names or changing numbers."""

    # -- on the node

    def device_ids(self, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        """Every (id, uuid) that the device plug-in offers. kubelet hands them out mixed: they only count."""

    def node_resources(self, cards: NodeGpus) -> Mapping[str, int]:
        """Further resources of the node's status that no device plug-in serves."""

    def environment(self, request: Request, container: str, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        """What the container finds in its environment, beside the device nodes."""

    # -- showing

    def sample_pod(self) -> Mapping[str, Any]:
        """A pod manifest that a user of this dialect would write."""

"""What nodes have of CPU and memory, and what the pods bound to them request of it.

All pods count, with GPU or without. Sums are kept per node, because policies ask for them in every decision.
"""

from collections.abc import Mapping, Set

from aliquot.model.host import NO_HOST, UNKNOWN, UNKNOWN_HOST, Host


class HostRoom:
    def __init__(self) -> None:
        self._offered: dict[str, Host] = {}
        self._pods: dict[str, dict[str, Host]] = {}
        """What each bound pod requests, by node and UID."""
        self._node_of: dict[str, str] = {}
        """By UID."""
        self._sums: dict[str, Host] = {}

    # -- changes

    def offer(self, node: str, host: Host) -> bool:
        """Set what a node offers. Returns whether that changed."""
        if self._offered.get(node) == host:
            return False
        self._offered[node] = host
        return True

    def withdraw(self, node: str) -> None:
        """A node is gone. Pods on it still count, until they are gone too: the node may come back."""
        self._offered.pop(node, None)

    def occupy(self, uid: str, node: str, host: Host) -> bool:
        """Set what a pod requests on the node to which it is bound. Returns whether that changed."""
        if self.of(uid, node) == host:
            return False
        self.vacate(uid)
        self._node_of[uid] = node
        self._pods.setdefault(node, {})[uid] = host
        self._sums[node] = self.taken(node) + host
        return True

    def vacate(self, uid: str) -> str:
        """Forget a pod. Returns the node that it leaves; empty if it was on none."""
        node = self._node_of.pop(uid, "")
        if node:
            self._sums[node] -= self._pods[node].pop(uid)
            if not self._pods[node]:
                del self._pods[node], self._sums[node]
        return node

    def recount(self, node: str) -> None:
        if node in self._pods:
            self._sums[node] = self._summed(node)
        else:
            self._sums.pop(node, None)

    # -- questions

    def offered_by(self, node: str) -> Host | None:
        return self._offered.get(node)

    def node_of(self, uid: str) -> str:
        """The node to which a pod is bound; empty if it is on none."""
        return self._node_of.get(uid, "")

    def of(self, uid: str, node: str) -> Host | None:
        """What a pod requests on a node; None if it is not bound there."""
        pods = self._pods.get(node)
        return pods.get(uid) if pods else None

    def uids_on(self, node: str) -> Set[str]:
        """The pods that are bound to a node."""
        pods = self._pods.get(node)
        return pods.keys() if pods else frozenset()

    def count(self, node: str) -> int:
        """How many pods are bound to a node."""
        return len(self._pods.get(node, ()))

    def taken(self, node: str) -> Host:
        """What the pods bound to a node request together."""
        return self._sums.get(node, NO_HOST)

    def left(self, node: str, claimed: Host) -> Host:
        """What a node has left next to its bound pods and what is `claimed` for others. Never negative: kubelet starts
        static pods without asking a scheduler."""
        offered, taken = self._offered.get(node, UNKNOWN_HOST), self.taken(node) + claimed
        return Host(_left(offered.cpu, taken.cpu), _left(offered.memory, taken.memory))

    def is_summed_right(self, node: str) -> bool:
        return self.taken(node) == self._summed(node)

    @property
    def uids(self) -> list[str]:
        return list(self._node_of)

    # -- snapshots

    @property
    def offered(self) -> Mapping[str, Host]:
        return dict(self._offered)

    @property
    def pods(self) -> Mapping[str, Mapping[str, Host]]:
        """By node and UID."""
        return {node: dict(pods) for node, pods in self._pods.items()}

    def _summed(self, node: str) -> Host:
        return sum(self._pods.get(node, {}).values(), NO_HOST)


def _left(offered: int, taken: int) -> int:
    return UNKNOWN if offered == UNKNOWN else max(0, offered - taken)

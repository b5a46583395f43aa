"""A trial: what if some pods were gone, and others placed?"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aliquot.control.state.totals import Totals
from aliquot.errors import NoRoom
from aliquot.ledger import Entry, Owner
from aliquot.model import Charge, Host, Placement, Request


class Trial:
    """Changes the totals, and remembers what was there before."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._ledger = totals.ledger
        self._before: list[tuple[str, str, Entry | None, Host | None]] = []
        """UID, node, and the entry and the CPU and memory of a bound pod before each change."""
        self._versions: dict[str, int] = {}
        """The version of each node before its first change."""
        self._changes = self._ledger.changes

    def remove(self, uid: str) -> None:
        """Count what a pod holds as free, on every node."""
        bound_to = self._totals.hosts.node_of(uid)
        for node in {*self._ledger.nodes_of(uid), *([bound_to] if bound_to else [])}:
            self.remove_from(node, uid)

    def remove_from(self, node: str, uid: str) -> None:
        """Count what a pod holds as free, on one node."""
        entry, host = self._ledger.entry(uid, node), self._totals.hosts.of(uid, node)
        if entry is None and host is None:
            return
        self._touch(node)
        self._totals.release(uid, node)
        if host is not None:
            self._totals.vacate_host(uid)
        self._before.append((uid, node, entry, host))

    def take(self, request: Request, placement: Placement) -> bool:
        """Take a placement. Returns whether it is free, and the pod holds nothing there yet."""
        if self._ledger.entry(request.uid, placement.node) is not None:
            return False
        self._touch(placement.node)
        try:
            self._totals.claim(request, placement)
        except NoRoom:
            return False
        self._before.append((request.uid, placement.node, None, None))
        return True

    def charge(self, node: str, charges: Mapping[str, Charge], request: Request | None = None) -> None:
        """Charge cards of a node, whether there is room or not. With a request, also the quota of the pod's namespace,
        and its CPU and memory."""
        owner = Owner(f"trial-{len(self._before)}", request.pod if request else "")
        self._touch(node)
        self._totals.adopt(owner, Placement(node, "", {}), charges, request)
        self._before.append((owner.uid, node, None, None))

    def checkpoint(self) -> int:
        return len(self._before)

    def rollback(self, checkpoint: int = 0) -> None:
        """Undo everything since the checkpoint, or everything."""
        while len(self._before) > checkpoint:
            uid, node, entry, host = self._before.pop()
            if entry is None:
                self._totals.release(uid, node)
            else:
                self._totals.put_back(entry)
            if host is not None:
                self._totals.occupy_host(uid, node, host)

    def close(self) -> None:
        """Leave no trace but the order of a node's entries: whoever compares versions sees that nothing has changed."""
        self.rollback()
        self._ledger.rewind(self._changes, self._versions)

    def _touch(self, node: str) -> None:
        self._versions.setdefault(node, self._ledger.version(node))


@contextmanager
def open_trial(totals: Totals) -> Iterator[Trial]:
    """One at a time. Until it ends, only the trial may change the totals."""
    assert not totals.in_trial, "a trial inside a trial is a checkpoint of the outer one"
    trial, totals.in_trial = Trial(totals), True
    try:
        yield trial
    finally:
        trial.close()
        totals.in_trial = False

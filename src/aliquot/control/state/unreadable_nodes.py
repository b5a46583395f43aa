"""Nodes with unreadable card reports: they keep their last good cards, and notes and logs say so."""

from itertools import islice

from aliquot.lazy_log import LazyLogger

_log = LazyLogger()
_MAX_NOTES = 5


class UnreadNodes:
    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def add(self, node: str, why: str) -> None:
        if self._why.get(node) != why:  # log once: kubelet updates its node every few minutes
            _log.error("cannot read a node's cards, keeping the last known ones", node=node, error=why)
        self._why[node] = why

    def remove(self, node: str) -> None:
        self._why.pop(node, None)

    def why(self, node: str) -> str:
        """Why a node's cards cannot be read; "" if they can."""
        return self._why.get(node, "")

    def notes(self) -> list[str]:
        more = len(self._why) - _MAX_NOTES
        told = [
            f"the cards of node {node} cannot be read, the last known ones are kept: {why}"
            for node, why in islice(self._why.items(), _MAX_NOTES)
        ]
        return told + ([f"nor those of {more} more nodes"] if more > 0 else [])

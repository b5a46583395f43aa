"""The control plane: a mirror of the cluster, the books, and the one way to write."""

from aliquot.control.books import Books
from aliquot.control.commit import Committer, Outcome
from aliquot.control.plane import ControlPlane

__all__ = ["ControlPlane", "Books", "Committer", "Outcome"]

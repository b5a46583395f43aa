"""The control plane: a mirror of the cluster, the books, and the one way to write."""

from aliquot.control.books import Books
from aliquot.control.commit import Committer, Outcome
from aliquot.control.leadership import Leadership, Role, Side
from aliquot.control.plane import ControlPlane
from aliquot.control.settings import ControlSettings, Mode

__all__ = ["ControlPlane", "Books", "Committer", "Outcome", "ControlSettings", "Mode", "Leadership", "Role", "Side"]

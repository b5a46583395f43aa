"""The kinds of objects we read and write, and their paths."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from aliquot.model import Node, Object, Pod

Kind = TypeVar("Kind", bound=Object)


@dataclass(frozen=True)
class Resource(Generic[Kind]):
    prefix: str
    plural: str
    type: type[Kind]
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of all objects, of those in a namespace, of one object, or of a part of it."""
        where = f"namespaces/{namespace}/" if self.namespaced and namespace else ""
        return "/".join(filter(None, (self.prefix, f"{where}{self.plural}", name, part)))


PODS = Resource("api/v1", "pods", Pod, namespaced=True)
NODES = Resource("api/v1", "nodes", Node, namespaced=False)
EVENTS = Resource("api/v1", "events", Object, namespaced=True)

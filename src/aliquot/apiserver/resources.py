"""A served resource: its names, scope, verbs, fields and columns."""

from dataclasses import dataclass

from aliquot.apiserver.tables import GENERIC, TableFormat

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource. `of` is the kind of its bodies if it is not the resource's own."""

    name: str
    verbs: tuple[str, ...]
    of: tuple[str, str, str] | None = None
    """Group, version and kind."""


@dataclass(frozen=True, slots=True)
class ServedResource:
    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    subresources: tuple[Subresource, ...] = ()
    fields: tuple[str, ...] = ()
    """Fields for field selectors, besides `metadata.name` and `metadata.namespace`."""
    table: TableFormat = GENERIC
    typed_items: bool = False
    """Whether each item of a list says its kind, as in lists of custom resources."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> str:
        """The store's name for these objects."""
        return ".".join(filter(None, (self.plural, self.group)))

    @property
    def prefix(self) -> str:
        """The path prefix of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

"""A connection to the API server with the caller's rights, and what a command reads over it.

What talks to servers is imported only by a command that does: an archive takes no asyncio, no TLS and no YAML.
"""

import argparse
import time
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from aliquot.errors import BadConfig
from aliquot.kubectl.gpu.output import say
from aliquot.reports.objects import ClusterObjects, Extra, QuotaPlace
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView, Purpose, view_of

if TYPE_CHECKING:
    from aliquot.kube.access import Access
    from aliquot.kube.client import Client

_Found = TypeVar("_Found")
_Asked = TypeVar("_Asked", bound=Report)
_TIMEOUT = 30.0
DEFAULT_NAMESPACE = "default"


class Session:
    """What the common options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises BadConfig."""
        if options.all_namespaces and options.namespace:
            raise BadConfig("--all-namespaces and --namespace contradict each other")
        self._archive: str = options.archive
        self.quotas = QuotaPlace.named(options.quotas)
        self._server: str = getattr(options, "server", "")
        self._server_ca: str = getattr(options, "server_ca", "")
        self._seen: ClusterView | None = None
        self._access = None if self._archive else _access(options)
        own = self._access.namespace if self._access else ""
        self.namespace = options.namespace or own or DEFAULT_NAMESPACE
        """Of a command that is about one namespace."""
        self.chosen = "" if options.all_namespaces else self.namespace
        """Empty for all namespaces."""
        self.where = f"namespace {self.chosen}" if self.chosen else "any namespace"

    def report(
        self,
        what: str,
        kind: type[_Asked],
        make: Callable[[ClusterView], _Asked],
        *optional: Extra,
        purpose: Purpose = Purpose.DECIDING,
        node: str = "",
    ) -> _Asked:
        """A report that is made here, or that the read endpoint `what` of a server answers for the chosen namespace.
        Raises KubeError and BadConfig."""
        if self._server:
            return self.ask(what, kind, node)
        self._seen = self.view(*optional, purpose=purpose)
        return make(self._seen)

    def ask(self, what: str, kind: type[_Asked], node: str = "") -> _Asked:
        """What a server's read endpoint answers for the chosen namespace. Raises KubeError and BadConfig."""
        from aliquot.kubectl.awaiting import awaited
        from aliquot.reports.asking import access_to, ask

        access = access_to(self._server, self._server_ca, self.access)
        return awaited(ask(access, what, kind, {"namespace": self.chosen, "node": node}, _TIMEOUT))

    @property
    def has_server(self) -> bool:
        return bool(self._server)

    @property
    def now(self) -> float:
        """When what is shown was read."""
        return self._seen.now if self._seen else time.time()

    def print_missing(self) -> None:
        if self._seen is not None:
            print_missing(self._seen)

    @property
    def access(self) -> "Access":
        """Raises BadConfig."""
        if self._access is None:
            raise BadConfig("this needs a cluster, and --from names a file")
        return self._access

    def call(self, work: "Callable[[Client], Coroutine[Any, Any, _Found]]") -> _Found:
        """Raises KubeError and BadConfig."""
        from aliquot.kube.client import Client
        from aliquot.kubectl.awaiting import awaited

        access = self.access

        async def within() -> _Found:
            async with Client(access, timeout=_TIMEOUT) as client:
                return await work(client)

        return awaited(within())

    def objects(self, *optional: Extra) -> ClusterObjects:
        """Raises KubeError and BadInput."""
        if self._archive:
            from aliquot.reports.archive import read_archive

            return read_archive(Path(self._archive))
        return self.call(lambda client: self._read(client, optional))

    def view(self, *optional: Extra, purpose: Purpose = Purpose.DECIDING) -> ClusterView:
        """The cluster as this caller can see it. Raises KubeError."""
        return view_of(self.objects(*optional), purpose=purpose)

    async def _read(self, client: "Client", optional: Collection[Extra]) -> ClusterObjects:
        from aliquot.reports.reading import read_objects

        objects = await read_objects(
            client, time.time(), namespace=self.namespace, optional=optional, quotas=self.quotas
        )
        # by the cluster's clock, because this machine's may be wrong, and then every agent would look silent
        return structs.replace(objects, at=client.server_time or objects.at)


def _access(options: argparse.Namespace) -> "Access":
    from aliquot.kube.access import find

    return find(options.kubeconfig or None, options.context)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """For commands that a server's read endpoints answer, too."""
    parser.add_argument("--server", default="", metavar="URL", help="ask the read endpoints of this server of Aliquot")
    parser.add_argument("--server-ca", default="", metavar="FILE", help="the authority of that server's certificate")


def print_missing(view: ClusterView) -> None:
    """Tell on standard error what further rights would show."""
    if view.only_namespace:
        say(f"note: only pods of namespace {view.only_namespace} are counted")
    for missing in view.missing:
        say(f"note: with one more right you would see {missing.what}: {missing.rule}")

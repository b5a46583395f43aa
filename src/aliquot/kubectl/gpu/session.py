"""A connection to the API server with the caller's rights, and what a command reads over it."""

import argparse
import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from aliquot.errors import BadConfig
from aliquot.kube.access import Access, find
from aliquot.kube.client import Client
from aliquot.kubectl.gpu.output import say
from aliquot.reports.archive import read_archive
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.reading import Optional, read_objects
from aliquot.reports.view import ClusterView, view_of

_Found = TypeVar("_Found")
_TIMEOUT = 30.0
DEFAULT_NAMESPACE = "default"


class Session:
    """What the common options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises BadConfig."""
        if options.all_namespaces and options.namespace:
            raise BadConfig("--all-namespaces and --namespace contradict each other")
        self._archive: str = options.archive
        self._access = None if self._archive else find(options.kubeconfig or None, options.context)
        own = self._access.namespace if self._access else ""
        self.namespace = options.namespace or own or DEFAULT_NAMESPACE
        """Of a command that is about one namespace."""
        self.chosen = "" if options.all_namespaces else self.namespace
        """Empty for all namespaces."""
        self.where = f"namespace {self.chosen}" if self.chosen else "any namespace"

    @property
    def access(self) -> Access:
        """Raises BadConfig."""
        if self._access is None:
            raise BadConfig("this needs a cluster, and --from names a file")
        return self._access

    def call(self, work: Callable[[Client], Coroutine[Any, Any, _Found]]) -> _Found:
        """Raises KubeError and BadConfig."""
        access = self.access

        async def within() -> _Found:
            async with Client(access, timeout=_TIMEOUT) as client:
                return await work(client)

        return asyncio.run(within())

    def objects(self, *optional: Optional) -> ClusterObjects:
        """Raises KubeError and BadInput."""
        if self._archive:
            return read_archive(Path(self._archive))
        return self.call(lambda client: self._read(client, optional))

    def view(self, *optional: Optional, decides: bool = True) -> ClusterView:
        """The cluster as this caller can see it. One that `decides` knows what policies need. Raises KubeError."""
        return view_of(self.objects(*optional), decides=decides)

    async def _read(self, client: Client, optional: Collection[Optional]) -> ClusterObjects:
        return await read_objects(client, time.time(), namespace=self.namespace, optional=optional)


def print_missing(view: ClusterView) -> None:
    """Tell on standard error what further rights would show."""
    if view.only_namespace:
        say(f"note: only pods of namespace {view.only_namespace} are counted")
    for missing in view.missing:
        say(f"note: with one more right you would see {missing.what}: {missing.rule}")

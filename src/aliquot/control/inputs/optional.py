"""Optional objects, watched if we may: without them we know less, but everything works."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, NoReturn

import structlog

from aliquot.clock import Clock
from aliquot.kube import Client, Informer, KubeError, NotFound
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import ApiResource, ObjectT
from aliquot.kube.rights import Right

_log = structlog.get_logger()
_RIGHTS_SECONDS = 60.0
"""How often to check for a missing right."""


class OptionalInformer(Generic[ObjectT]):
    """Watches the objects of `right`: a single name, a namespace, or all."""

    def __init__(
        self,
        client: Client,
        resource: ApiResource[ObjectT],
        handler: Callable[[ObjectT | None, ObjectT | None], None],
        right: Right,
        clock: Clock,
        indexes: Mapping[str, Callable[[ObjectT], str]] | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._right = right
        self._clock = clock
        action = right.action
        self._namespace = action.namespace
        self._selector = {"fieldSelector": f"metadata.name={action.name}"} if action.name else None
        self.informer: Informer[ObjectT] = Informer(
            client,
            resource,
            handler,
            namespace=self._namespace,
            selector=self._selector,
            indexes=indexes,
            clock=clock,
        )
        kind, where = resource.type.__name__, f" in {action.namespace}" if action.namespace else ""
        self._what = f"{kind} {action.namespace}/{action.name}" if action.name else f"{kind}s{where}"
        self._missing: list[str] = []
        self.tried = asyncio.Event()
        """Set when the objects are known, or cannot be known for now."""

    async def run(self) -> NoReturn:
        while await self._is_withheld():
            self.tried.set()
            await self._clock.sleep(_RIGHTS_SECONDS)
        async with asyncio.TaskGroup() as following:
            following.create_task(self.informer.run())
            await self.informer.synced.wait()
            self.tried.set()
        raise AssertionError("an informer does not end")

    async def _is_withheld(self) -> bool:
        try:
            pages = self._client.pages(self._resource, namespace=self._namespace, selector=self._selector, limit=1)
            await anext(pages)
        except Forbidden:
            missing = f"{self._right}; the rule to add: {self._right.rule()}"
            if missing not in self._missing:
                _log.warning("a right is missing", why=str(self._right), rule_to_add=self._right.rule())
            self._missing = [missing]
            return True
        except NotFound:
            self._missing = [f"the API server does not serve {self._resource.path()}: {self._right.without}"]
            return True
        except KubeError:
            self.tried.set()  # nobody waits for these; the informer retries, and reports it
        self._missing = []
        return False

    def notes(self) -> list[str]:
        """What is unknown, and why."""
        if self._missing or not self.tried.is_set():
            return self._missing
        if not self.informer.trouble:
            return []
        kept = (
            f"{self._what}: the last known ones stay in force" if self.informer.synced.is_set() else self._right.without
        )
        rule = f"; the rule to add: {self._right.rule()}" if self.informer.is_forbidden else ""
        return [f"{kept}: {self.informer.trouble}{rule}"]

"""Reads what `doctor` examines besides nodes and pods. What the caller may not read stays unknown."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from aliquot.config.sections.replicas import LeaseSection
from aliquot.control.leadership import rights
from aliquot.dialects import Dialects
from aliquot.kube.client import Client
from aliquot.kube.errors import Forbidden, NotFound
from aliquot.kube.resources import CONFIG_MAPS, LEASES, POLICY_BINDINGS, Lease, PolicyBinding
from aliquot.kube.reviews import User, may
from aliquot.kube.rights import Right
from aliquot.model.admission import SERVER_ACCOUNT
from aliquot.reports.doctor import Facts
from aliquot.reports.scheduler_config import SchedulerConfig, scheduler_configs

_Found = TypeVar("_Found")
_LEASE = LeaseSection()


async def read_facts(client: Client, dialects: Dialects) -> Facts:
    """Raises KubeError."""
    lease, schedulers, policies, withheld = await asyncio.gather(
        _allowed(_server_lease(client)),
        _allowed(_schedulers(client, dialects)),
        _allowed(_policies(client)),
        _allowed(_withheld(client)),
    )
    return Facts(
        server_lease=lease[0] if lease else None,
        may_read_server_lease=lease is not None,
        schedulers=schedulers,
        policies=policies,
        withheld=withheld,
    )


async def _allowed(reading: Awaitable[_Found]) -> _Found | None:
    try:
        return await reading
    except Forbidden:
        return None


async def _server_lease(client: Client) -> tuple[Lease | None]:
    try:
        return (await client.get(LEASES, _LEASE.name, _LEASE.namespace),)
    except NotFound:
        return (None,)


async def _schedulers(client: Client, dialects: Dialects) -> list[SchedulerConfig]:
    maps = (await client.list(CONFIG_MAPS, namespace="kube-system")).items
    return scheduler_configs(maps, dialects)


async def _policies(client: Client) -> Sequence[PolicyBinding]:
    try:
        return (await client.list(POLICY_BINDINGS)).items
    except NotFound:
        return ()


async def _withheld(client: Client) -> list[str]:
    account = User(f"system:serviceaccount:{_LEASE.namespace}:{SERVER_ACCOUNT}")
    needed: list[Right] = [
        *rights.for_replicas(_LEASE),
        *rights.for_helping(_LEASE),
        rights.READ_BUDGETS,
        rights.REVIEW_TOKENS,
    ]
    allowed = await asyncio.gather(*(may(client, account, right.action) for right in needed))
    return [f"{right}: {right.rule()}" for right, status in zip(needed, allowed, strict=True) if not status.allowed]

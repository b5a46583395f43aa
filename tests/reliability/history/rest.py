"""A cluster at rest: a leader leads, every bound pod has its cards, whoever fits is bound, free cards are sold."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from tests.reliability.history.callers import NATIVE, PROBE
from tests.reliability.history.figures import LOST, NOT_LEADING
from tests.reliability.history.kinds import dialect_of
from tests.reliability.history.machines import Machine
from tests.reliability.history.witness import Pod, has_ended, is_leaving, is_placed, name_of, names_of, node_of
from tests.reliability.history.world import World

_LEASES, _AT_LEAST = 12, 60.0
"""A leader must lead within so many Leases; a busy machine needs some seconds to start a server, however short they
are."""
_PATIENCE = 120.0
"""Seconds for everything else: late placement, claims that run out, a busy machine."""
_TIME_OUT = aiohttp.ClientTimeout(total=5.0)


class Rest:
    def __init__(self, world: World) -> None:
        self._world = world
        self._probes = 0

    async def check(self) -> None:
        """Violations are told to the world."""
        async with aiohttp.ClientSession(timeout=_TIME_OUT) as session:
            self._session = session
            if not await self._leads():
                return
            await self._everyone_has_a_place()
            self._world.is_paused = True
            try:
                await self._free_is_what_is_free()
            finally:
                self._world.is_paused = False

    # -- somebody leads

    async def _leads(self) -> bool:
        limit = max(_LEASES * self._world.setup.lease, _AT_LEAST)
        end, why = time.monotonic() + limit, ""
        while time.monotonic() < end:
            why = await self._why_not_leading()
            if not why:
                return True
            await asyncio.sleep(0.5)
        self._world.violate(NOT_LEADING, f"after {limit:.0f} s without any trouble: {why}", ())
        return False

    async def _why_not_leading(self) -> str:
        for replica in self._world.replicas:
            try:
                async with self._session.get(f"{replica.server.native}/readyz") as response:
                    if response.status != 200:
                        return f"{replica.name}: /readyz is {response.status}: {(await response.text())[:300]}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                return f"{replica.name}: {type(error).__name__}"
        pod = self._probe({"aliquot.io/memory": "1Mi"}, 1)
        try:
            answer = await self._filter(pod, [machine.name for machine in self._world.machines.values()])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return f"a filter: {type(error).__name__}"
        finally:
            self._world.delete_pod(pod, 0)
        return str(answer.get("Error") or "")

    # -- whoever was bound has cards, whoever fits is bound

    async def _everyone_has_a_place(self) -> None:
        if not await self._comes_true(lambda: not self._unplaced()):
            for pod in self._unplaced():
                text = (
                    f"{name_of(pod)} is bound to {node_of(pod)}, without cards {_PATIENCE:.0f} s after the last trouble"
                )
                self._world.violate(LOST, text, names_of(pod))
        await self._comes_true(lambda: not self._leaving_without_cards())
        if not await self._comes_true(lambda: not self._stranded()):
            for pod in self._stranded():
                nodes = [m.name for m in self._serving(pod) if self._world.witness.fits(pod, m)]
                text = f"{name_of(pod)} waits although it fits on {nodes}"
                self._world.violate(LOST, text, (name_of(pod), *nodes))

    def _unplaced(self) -> list[Pod]:
        """Where a pod was bound whose dialect our agent does not serve, nobody owes it cards."""
        return [
            pod
            for pod in self._world.witness.bound()
            if self._world.machines[node_of(pod)] in self._serving(pod)
            and not (is_placed(pod) or has_ended(pod) or is_leaving(pod) or pod["status"].get("phase") == "Failed")
        ]

    def _leaving_without_cards(self) -> list[Pod]:
        """Pods that were told to end before they got cards: nobody places them any more, and whole cards may count as
        theirs until they are gone."""
        return [pod for pod in self._world.witness.bound() if is_leaving(pod) and not is_placed(pod)]

    def _stranded(self) -> list[Pod]:
        waiting = [pod for pod in self._world.witness.waiting() if not pod["metadata"]["name"].startswith(PROBE)]
        return [pod for pod in waiting if any(self._world.witness.fits(pod, m) for m in self._serving(pod))]

    def _serving(self, pod: Pod) -> list[Machine]:
        """Where our agent hands over cards to such pods."""
        return [m for m in self._world.machines.values() if m.hands_over(dialect_of(pod))]

    # -- what the server holds for free is what is free

    async def _free_is_what_is_free(self) -> None:
        """Asked again and again: whatever was on its way when everybody paused comes to its end first."""
        wrong: list[tuple[str, str]] = []
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if not self._world.busy.total() and not self._unplaced():
                wrong = [found for machine in self._world.machines.values() for found in await self._asked_of(machine)]
                if not wrong:
                    return
            await asyncio.sleep(1.0)
        for node, text in wrong:
            self._world.violate(LOST, text, (node, *(name_of(pod) for pod in self._world.witness.on(node))))

    async def _asked_of(self, machine: Machine) -> list[tuple[str, str]]:
        questions = self._questions(machine)
        try:
            return [found for question in questions if (found := await self._wrong(*question))]
        finally:
            for _, pod, *_ in questions:
                self._world.delete_pod(pod, 0)

    def _questions(self, machine: Machine) -> list[tuple[Machine, Pod, bool, str]]:
        """For the k-th emptiest card: k cards of just what it has left must fit, and of one more must not."""
        if not machine.is_ours or "aliquot" not in machine.dialects:
            return []
        sums = {card: self._world.witness.sum(card.uuid) for card in machine.listed}
        left = [
            (card.mib - taken.mib, 100 - taken.cores) if taken.cores < 100 and not taken.slots else (0, 0)
            for card, taken in sums.items()
        ]
        found = []
        for unit, word, amounts in (
            ("Mi", "memory", sorted((mib for mib, _ in left), reverse=True)),
            ("", "cores", sorted((cores for _, cores in left), reverse=True)),
        ):
            for count, amount in enumerate(amounts, start=1):
                for asked in (amount, amount + 1):
                    if asked and not (word == "cores" and asked > 100):
                        pod = self._probe({f"aliquot.io/{word}": f"{asked}{unit}"}, count)
                        found.append(
                            (machine, pod, asked == amount, f"{count} cards with {asked}{unit} {word} of each")
                        )
        return found

    async def _wrong(self, machine: Machine, pod: Pod, is_free: bool, what: str) -> tuple[str, str] | None:
        try:
            answer = await self._filter(pod, [machine.name])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return machine.name, f"{machine.name}: no answer to a filter: {type(error).__name__}"
        if bool(answer.get("NodeNames")) == is_free:
            return None
        truth = "are free" if is_free else "are not free"
        said = answer.get("Error") or answer.get("FailedNodes") or "they fit"
        return machine.name, f"{machine.name}: {what} {truth}, and the server says: {said}"

    # -- how

    def _probe(self, annotations: dict[str, str], count: int) -> Pod:
        self._probes += 1
        limits = {"aliquot.io/gpu": str(count)}
        pod = self._world.create_pod(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{PROBE}-{self._probes}", "namespace": "default", "annotations": annotations},
                "spec": {
                    "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
                },
            }
        )
        assert pod is not None, "no other pod has this name"
        self._world.figures.counts["pods"] -= 1
        return pod

    async def _filter(self, pod: Pod, nodes: list[str]) -> Any:
        replica = self._world.chance.choice(self._world.replicas)
        body = {"Pod": pod, "NodeNames": nodes}
        return await self._world.call(self._session, replica, NATIVE.name, f"{NATIVE.prefix}/{NATIVE.filter}", body)

    async def _comes_true(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(0.2)
        return True

"""A stream of short jobs in every dialect. Each job starts, runs its script, succeeds or fails, and is removed."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

import msgspec
import structlog

from aliquot.app.demo.samples import Sample
from aliquot.clock import Clock, SystemClock
from aliquot.control import ControlPlane
from aliquot.embedded.nodes import SCRIPT
from aliquot.errors import BadDemand
from aliquot.kube import PODS, Client, KubeError, NotFound
from aliquot.model import Pod

_log = structlog.get_logger()

LABEL = "aliquot-demo/stream"
"""Marks every job of the stream, so that the demo never removes other pods."""

SEED = 4
"""The default seed."""

_MEAN_PAUSE = 3.5
_SHORTEST, _LONGEST = 15, 60
_SIZES = (1, 1, 2, 2, 3, 4)
_FAILS = 0.1
_NAMESPACE = "default"
_MAX_WAITING = 4
"""While this many jobs wait, no further jobs start: users of the demo need room, too."""
_SHOWN_SECONDS = 8.0
"""How long a finished job stays visible."""
_PATIENCE_SECONDS = 40.0
"""After how long a waiting job is removed."""
_WORDS = ("train", "tune", "infer", "eval")


def menu(samples: Sequence[Sample], fits: Callable[[Pod], bool]) -> list[list[dict[str, Any]]]:
    """For each sample, the jobs that resemble it: multiples of the sample's demand, as far as they fit."""
    sizes = ([_times(sample, factor) for factor in _SIZES] for sample in samples)
    fitting = ([manifest for manifest in own if fits(msgspec.convert(manifest, Pod))] for own in sizes)
    return [own for own in fitting if own]


def _times(sample: Sample, factor: int) -> dict[str, Any]:
    manifest = copy.deepcopy(dict(sample.pod))
    ours = {resource.name for resource in sample.dialect.resources}
    for container in manifest["spec"]["containers"]:
        limits = container["resources"]["limits"]
        limits |= {name: str(int(amount) * factor) for name, amount in limits.items() if name in ours}
    return manifest


def jobs(choices: Sequence[Sequence[Mapping[str, Any]]], seed: int) -> Iterator[dict[str, Any]]:
    """An endless stream of pod manifests, in random dialects and sizes. The same seed gives the same stream."""
    random = Random(seed)
    for number in count(1):
        manifest = copy.deepcopy(dict(random.choice(random.choice(choices))))
        name = f"{random.choice(_WORDS)}-{number:03}"
        annotations = {**manifest["metadata"].get("annotations", {}), SCRIPT: _script(random)}
        manifest["metadata"] = {
            "name": name,
            "namespace": _NAMESPACE,
            "labels": {LABEL: "true"},
            "annotations": annotations,
        }
        manifest["spec"]["restartPolicy"] = "Never"
        yield manifest


def _script(random: Random) -> str:
    then = f"fails with {random.choice((1, 137))}" if random.random() < _FAILS else "succeeds"
    return f"runs {random.randint(_SHORTEST, _LONGEST)}s, uses {random.randint(2, 19) * 5}%, then {then}"


class Workload:
    """Creates the jobs of a stream, and removes those that have finished or waited too long."""

    def __init__(
        self,
        client: Client,
        plane: ControlPlane,
        samples: Sequence[Sample],
        seed: int = SEED,
        clock: Clock | None = None,
    ) -> None:
        """Only jobs that fit next to the pods that run now are created."""
        self._client = client
        self._plane = plane
        self._clock = clock or SystemClock()
        self._random = Random(seed)
        self._choices = menu(samples, self._fits)
        self._jobs = jobs(self._choices, seed)
        self._since: dict[tuple[str, str], float] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        next_at = self._clock.monotonic()
        while self._choices:
            try:
                await self.tidy()
                if self._clock.monotonic() >= next_at and self._waiting() < _MAX_WAITING:
                    next_at = self._clock.monotonic() + self._random.expovariate(1 / _MEAN_PAUSE)
                    await self._client.create(PODS, next(self._jobs), _NAMESPACE)
            except KubeError as error:
                _log.warning("skipping a job of the stream", error=str(error))  # the next job comes anyway
            await self._clock.sleep(0.5)

    def _fits(self, pod: Pod) -> bool:
        try:
            demand = self._plane.cluster.demand_of(pod)
        except BadDemand:
            return False
        return demand is not None and self._plane.cluster.judge(demand).best(self._nodes()) is not None

    def _nodes(self) -> list[str]:
        return [node.key for node in self._plane.nodes.all()]

    async def tidy(self) -> None:
        """One pass: remove jobs that finished long enough ago, or have waited long enough."""
        now = self._clock.monotonic()
        states = {(pod.metadata.uid, _state(pod)): pod for pod in self._own()}
        self._since = {key: self._since.get(key, now) for key in states}
        for (uid, state), pod in states.items():
            longest = {"ended": _SHOWN_SECONDS, "waits": _PATIENCE_SECONDS}.get(state)
            if longest is not None and now - self._since[uid, state] >= longest:
                await self._remove(pod)

    async def _remove(self, pod: Pod) -> None:
        try:
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return

    def _own(self) -> list[Pod]:
        return [
            pod
            for pod in self._plane.pods.all()
            if LABEL in pod.metadata.labels and not pod.metadata.deletion_timestamp
        ]

    def _waiting(self) -> int:
        return sum(_state(pod) == "waits" for pod in self._own())


def _state(pod: Pod) -> str:
    return "ended" if pod.ended else "runs" if pod.spec.node_name else "waits"

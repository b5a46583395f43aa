"""The health of each card: what its reading says, what errors its driver reported, and what a person says of it.

- A fault of the reading (lost, hung, hot, broken memory) lasts as long as the reading shows it.
- An error of the driver lasts until the card was off the bus and came back, or until a person says that it is good.
- A person's cordon lasts until the person takes it back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from aliquot.agent.devices import CardError, Judgement, Machine, Usage, Verdict
from aliquot.dialects.cordons import NO, YES, words
from aliquot.model import Gpu, NodeGpus

_NO_DRIVER = "the driver shows no card"
_BY_HAND = "it was cordoned by hand"


@dataclass(frozen=True)
class LastingError:
    """The worst error of a card that still counts. `is_newer` than a person's word that the card is good."""

    code: int
    is_newer: bool = False


@dataclass(frozen=True)
class CardState:
    """A card as it is published. `fault` says why it is unhealthy, `cordon` why it takes no new pods. Its `usage` is
    unknown while it does not answer."""

    gpu: Gpu
    fault: str = ""
    cordon: str = ""
    usage: Usage = field(default_factory=Usage)

    def __str__(self) -> str:
        return f"card {self.gpu.index} ({self.gpu.uuid})"


class CardHealth:
    """`judge` says what follows from an error. `errors` are those from before a restart of the agent, by uuid."""

    def __init__(
        self, judge: Callable[[int], Judgement], machine: Machine, errors: Mapping[str, LastingError] | None = None
    ) -> None:
        self._judge = judge
        self.machine = machine
        self._has_driver = True
        self._absent = machine.absent
        self._annotations: Mapping[str, str] = {}
        self._words: Mapping[str, str] = {}
        self.errors: Mapping[str, LastingError] = dict(errors or {})

    # -- what is seen

    def see_machine(self, machine: Machine | None) -> None:
        """What the driver shows; None while there is no driver. A card that comes back has been reset."""
        known = {gpu.uuid for gpu in self.machine.gpus}
        self._has_driver = machine is not None
        if machine is None:
            self._absent = frozenset(known)
            return
        present = {gpu.uuid for gpu in machine.gpus} - machine.absent
        self._forget(self._absent & present)
        self._absent = (self._absent | known | machine.absent) - present
        self.machine = machine
        self.see_annotations(self._annotations)

    def see_error(self, error: CardError) -> Judgement | None:
        """An error of the driver. Returns what follows from it; None if this node has no such card."""
        if all(gpu.uuid != error.uuid for gpu in self.machine.gpus):
            return None
        judgement, known = self._judge(error.code), self.errors.get(error.uuid)
        is_worse = known is None or self._judge(known.code).verdict is not Verdict.DRAIN
        if judgement.verdict is not Verdict.IGNORE and is_worse:
            lasting = LastingError(error.code, is_newer=self._words.get(error.uuid) == NO)
            self.errors = {**self.errors, error.uuid: lasting}
        return judgement

    def see_annotations(self, annotations: Mapping[str, str]) -> None:
        """The annotations of the Node. The word that a card is good ends the errors from before."""
        self._annotations = annotations
        self._words = words(annotations, NodeGpus("", self.machine.gpus, 1))
        good = {uuid for uuid, word in self._words.items() if word == NO}
        self._forget([uuid for uuid, error in self.errors.items() if uuid in good and not error.is_newer])
        self.errors = {
            uuid: error if uuid in good else replace(error, is_newer=False) for uuid, error in self.errors.items()
        }

    def _forget(self, uuids: Iterable[str]) -> None:
        ended = frozenset(uuids)
        self.errors = {uuid: error for uuid, error in self.errors.items() if uuid not in ended}

    # -- what follows

    def states(self) -> tuple[CardState, ...]:
        """Every card by index."""
        return tuple(map(self._state, self.machine.gpus))

    def _state(self, gpu: Gpu) -> CardState:
        errors = list(self._errors_of(gpu))
        cordons = [text for verdict, text in errors if verdict is Verdict.CORDON]
        faults = [text for verdict, text in errors if verdict is Verdict.DRAIN]
        if not self._has_driver:
            faults = [_NO_DRIVER]
        elif not gpu.healthy:
            faults.insert(0, self.machine.faults.get(gpu.uuid, "its reading says so"))
        by_hand = [_BY_HAND] if self._words.get(gpu.uuid) == YES else []
        shown = replace(gpu, healthy=not faults, cordoned=gpu.cordoned or bool(cordons))
        usage = self.machine.usage.get(gpu.uuid) if self._has_driver else None
        return CardState(shown, "; ".join(faults), "; ".join(cordons + by_hand), usage or Usage())

    def _errors_of(self, gpu: Gpu) -> Iterator[tuple[Verdict, str]]:
        """The errors of a card, and for a MIG instance those of its card, too."""
        for uuid in filter(None, (gpu.parent, gpu.uuid)):
            if error := self.errors.get(uuid):
                judgement = self._judge(error.code)
                yield judgement.verdict, f"XID {error.code}: {judgement.meaning}"

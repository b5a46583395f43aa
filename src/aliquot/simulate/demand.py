"""How much of a card a pod asks for, in thousandths of a card."""

from collections import Counter
from collections.abc import Iterable, Mapping

from aliquot.engine.workload import WHOLE
from aliquot.model import CORES, Charge, Gpu, NodeGpus, Part, peak
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod


def share_taken(gpu: Gpu, taken: Charge) -> int:
    """The thousandths of a card that are no longer idle, in the measure of which more is taken."""
    return min(WHOLE, max(-(-taken.mib * WHOLE // max(1, gpu.mib)), taken.cores * (WHOLE // CORES)))


def taken_of(cards: NodeGpus, used: Mapping[str, Charge]) -> int:
    """The thousandths of a node's sellable cards that are taken."""
    return sum(share_taken(gpu, used[gpu.uuid]) for gpu in cards.gpus if gpu.uuid in used and cards.sells(gpu))


class Demands:
    """What pods ask for before anybody knows where they go: their mean share of the cards that they could get."""

    def __init__(self, nodes: Iterable[SimulatedNode]) -> None:
        self._kinds: Counter[tuple[Gpu, int]] = Counter()
        for node in nodes:
            for gpu in node.cards.gpus:
                if node.cards.sells(gpu):
                    alike = Gpu("", 0, 0, gpu.model, gpu.mib, slots=gpu.slots, profile=gpu.profile)
                    self._kinds[alike, node.cards.unit_mib] += 1
        self._known: dict[object, int] = {}

    def of(self, pod: SimulatedPod) -> int:
        key = pod.request.containers, pod.request.constraints.models, pod.request.constraints.mig
        if key not in self._known:
            self._known[key] = self._of(pod)
        return self._known[key]

    def _of(self, pod: SimulatedPod) -> int:
        containers = pod.request.containers
        return peak((each.life, each.part.cards * self._share(pod, each.part)) for each in containers)

    def _share(self, pod: SimulatedPod, part: Part) -> int:
        if part.whole:
            return WHOLE
        wanted = pod.request.constraints
        shares = Counter[int]()
        for (gpu, unit_mib), count in self._kinds.items():
            if wanted.allows_model(gpu.model) and wanted.allows_instance(gpu.profile):
                shares[share_taken(gpu, part.on(gpu, unit_mib))] += count
        return round(sum(share * count for share, count in shares.items()) / shares.total()) if shares else WHOLE

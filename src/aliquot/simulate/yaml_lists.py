"""Clusters and pods in YAML: Kubernetes' own Nodes and Pods in any dialect, or a short form.

```yaml
nodes:
- {name: gpu, count: 20, model: A100, cards: 8, cardMemory: 40Gi, cpu: 96, memory: 768Gi}
pods:
- {name: train, count: 10, class: training, cards: 8, cpu: 64, memory: 500Gi, models: [A100]}
- {name: notebook, count: 300, class: notebooks, cards: 1, share: 25%, cpu: 4, memory: 16Gi}
```
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import yaml

from aliquot.engine.workload import WHOLE
from aliquot.errors import BadInput, BadQuantity
from aliquot.model import Host, Memory, Node, Part
from aliquot.model.bounds import MAX_CARDS, MAX_MIB, MIB
from aliquot.model.host import UNKNOWN
from aliquot.model.kubernetes import Quantity
from aliquot.model.quantity import milli, parse, whole
from aliquot.plain import why
from aliquot.simulate.making import CARD_MIB, part_of_share, simulated_node, simulated_request
from aliquot.simulate.objects import Objects, OwnedPod
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod

_MOST = 100_000
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Cards = Annotated[int, msgspec.Meta(ge=0, le=MAX_CARDS)]


class _Short(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    kind: ClassVar[str]
    name: str
    count: _Count = 1
    cards: _Cards | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None
    card_memory: Quantity = 0

    @property
    def names(self) -> Iterator[str]:
        return (self.name if self.count == 1 else f"{self.name}-{number:04d}" for number in range(self.count))

    @property
    def card_mib(self) -> int:
        return min(-(-self.read("cardMemory", self.card_memory, whole) // MIB), MAX_MIB)

    def host(self, default: int) -> Host:
        """`default` stands for what is left out."""
        cpu = default if self.cpu is None else self.read("cpu", self.cpu, milli)
        memory = default if self.memory is None else -(-self.read("memory", self.memory, whole) // MIB)
        return Host(min(cpu, UNKNOWN), min(memory, UNKNOWN))

    def read(self, field: str, amount: Quantity, reader: Callable[[str], int]) -> int:
        try:
            return reader(str(amount))
        except BadQuantity as error:
            raise self.wrong(f"{field}: {error}") from error

    def wrong(self, text: str) -> BadInput:
        return BadInput(f"{self.kind} {self.name}, {text}")


class _ShortNode(_Short):
    kind = "node"
    model: str = ""

    def nodes(self) -> Iterator[SimulatedNode]:
        host = self.host(UNKNOWN)
        for name in self.names:
            yield simulated_node(name, self.model, self.cards or 0, self.card_mib or CARD_MIB, host)


class _ShortPod(_Short):
    kind = "pod"
    share: str | float | None = None
    class_: str = msgspec.field(name="class", default="")
    models: tuple[str, ...] = ()
    arrives: float = 0.0
    leaves: float | None = None

    def pods(self) -> Iterator[SimulatedPod]:
        if self.leaves is not None and self.leaves < self.arrives:
            raise self.wrong("leaves: it leaves before it arrives")
        part, host = self._part, self.host(0)
        for name in self.names:
            request = simulated_request(name, part, host, self.models)
            yield SimulatedPod(request, self.class_, arrives=self.arrives, leaves=self.leaves)

    @property
    def _part(self) -> Part | None:
        """A part of a card without a number of cards is a part of one."""
        partly = self.share is not None or self.card_mib > 0
        cards = int(partly) if self.cards is None else self.cards
        if not cards and (partly or self.models):
            raise self.wrong("cards: share, cardMemory and models are of cards, and it asks for none")
        if self.share is not None and self.card_mib:
            raise self.wrong("share: cardMemory stands in its place; write one of both")
        if not cards:
            return None
        return Part(cards, memory=Memory(self.card_mib)) if self.card_mib else part_of_share(cards, self._milli)

    @property
    def _milli(self) -> int:
        """`25%` and 0.25 are the same."""
        text = "100%" if self.share is None else str(self.share)
        try:
            share = parse(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except BadQuantity:
            share = Fraction(0)
        if not 0 < share <= 1:
            raise self.wrong(f"share: {text!r} is not a share of a card such as 25% or 0.25")
        return -(-share.numerator * WHOLE // share.denominator)


class _ShortList(msgspec.Struct, forbid_unknown_fields=True):
    nodes: list[_ShortNode] = []
    pods: list[_ShortPod] = []


def is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def read_yaml(path: Path, into: Objects, *, nodes: bool = True, pods: bool = True) -> None:
    """Add the nodes and the pods of a file, or only one of both. Raises BadInput."""
    try:
        documents = [each for each in yaml.load_all(path.read_text(), _Loader) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {why(error)}") from error
    try:
        for document in documents:
            _read(document, into, nodes=nodes, pods=pods)
    except (BadInput, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {error}") from error


def _read(document: Any, into: Objects, *, nodes: bool, pods: bool) -> None:
    if not isinstance(document, Mapping):
        raise BadInput("a document is neither an object nor a list of nodes and pods")
    match document.get("kind"):
        case None:
            short = msgspec.convert(document, _ShortList)
            into.nodes += [node for each in short.nodes for node in each.nodes() if nodes]
            into.pods += [pod for each in short.pods for pod in each.pods() if pods]
        case "List" | "NodeList" | "PodList" as kind:
            for item in msgspec.convert(document.get("items") or [], list[dict[str, Any]]):
                _read({"kind": kind.removesuffix("List"), **item}, into, nodes=nodes, pods=pods)
        case "Node":
            if nodes:
                into.add_node(msgspec.convert(document, Node))
        case "Pod":
            if pods:
                into.add_pod(msgspec.convert(document, OwnedPod))
        case kind:
            raise BadInput(
                f"kind {str(kind)[:64]!r} is not read here; write Nodes and Pods, or the short form with nodes and pods"
            )


class _Loader(yaml.SafeLoader):
    """Times stay text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

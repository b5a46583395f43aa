"""Clusters and pods in YAML: Kubernetes' own Nodes and Pods in any dialect, or a short form.

```yaml
nodes:
- {name: gpu, count: 20, model: A100, cards: 8, cardMemory: 40Gi, cpu: 96, memory: 768Gi}
pods:
- {name: train, count: 10, class: training, cards: 8, cpu: 64, memory: 500Gi, models: [A100]}
- {name: notebook, count: 300, class: notebooks, cards: 1, share: 25%, cpu: 4, memory: 16Gi}
```
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import yaml

from aliquot.engine.workload import WHOLE
from aliquot.errors import BadInput
from aliquot.model import Host, Memory, Node, Part, Pod
from aliquot.model.bounds import MAX_CARDS, MAX_MIB, MIB
from aliquot.model.host import UNKNOWN
from aliquot.model.kubernetes import Quantity
from aliquot.model.quantity import milli, parse, whole
from aliquot.plain import why
from aliquot.simulate.making import CARD_MIB, part_of_share, simulated_node, simulated_request
from aliquot.simulate.objects import Objects
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod

_MOST = 100_000
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Cards = Annotated[int, msgspec.Meta(ge=0, le=MAX_CARDS)]
_Value = TypeVar("_Value")


class _Short(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    name: str
    count: _Count = 1
    cards: _Cards = 0
    cpu: Quantity = 0
    memory: Quantity = 0
    card_memory: Quantity = 0

    @property
    def names(self) -> Iterator[str]:
        return (self.name if self.count == 1 else f"{self.name}-{number:04d}" for number in range(self.count))

    @property
    def host(self) -> Host:
        return Host(min(milli(str(self.cpu)), UNKNOWN), -(-whole(str(self.memory)) // MIB))

    @property
    def card_mib(self) -> int:
        return min(-(-whole(str(self.card_memory)) // MIB), MAX_MIB)


class _ShortNode(_Short):
    model: str = ""

    def nodes(self) -> Iterator[SimulatedNode]:
        for name in self.names:
            yield simulated_node(name, self.model, self.cards, self.card_mib or CARD_MIB, self.host)


class _ShortPod(_Short):
    share: str | float = "100%"
    class_: str = msgspec.field(name="class", default="")
    models: tuple[str, ...] = ()
    arrives: float = 0.0
    leaves: float | None = None

    def pods(self) -> Iterator[SimulatedPod]:
        for name in self.names:
            request = simulated_request(name, self._part, self.host, self.models)
            yield SimulatedPod(request, self.class_, arrives=self.arrives, leaves=self.leaves)

    @property
    def _part(self) -> Part | None:
        if not self.cards:
            return None
        return (
            Part(self.cards, memory=Memory(self.card_mib)) if self.card_mib else part_of_share(self.cards, self._milli)
        )

    @property
    def _milli(self) -> int:
        """`25%` and 0.25 are the same."""
        text = str(self.share)
        share = parse(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not 0 < share <= 1:
            raise BadInput(f"pod {self.name}, share: {text!r} is not a share of a card such as 25% or 0.25")
        return -(-share.numerator * WHOLE // share.denominator)


class _ShortList(msgspec.Struct, forbid_unknown_fields=True):
    nodes: list[_ShortNode] = []
    pods: list[_ShortPod] = []


def read_yaml(path: Path, into: Objects) -> None:
    """Add what a file has. Raises BadInput."""
    try:
        documents = [each for each in yaml.load_all(path.read_text(), _Loader) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {why(error)}") from error
    try:
        for document in documents:
            _read(document, into)
    except (BadInput, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {error}") from error


def _read(document: Any, into: Objects) -> None:
    if not isinstance(document, Mapping):
        raise BadInput("a document is neither an object nor a list of nodes and pods")
    match document.get("kind"):
        case None:
            short = msgspec.convert(document, _ShortList)
            into.nodes += [node for each in short.nodes for node in each.nodes()]
            into.pods += [pod for each in short.pods for pod in each.pods()]
        case "List" | "NodeList" | "PodList" as kind:
            for item in msgspec.convert(document.get("items") or [], list[dict[str, Any]]):
                _read({"kind": kind.removesuffix("List"), **item}, into)
        case "Node":
            into.add_node(msgspec.convert(document, Node))
        case "Pod":
            into.add_pod(msgspec.convert(document, Pod))
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

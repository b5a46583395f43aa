"""`kubectl gpu cordon` and `kubectl gpu uncordon`: a person's word about a card, as an annotation of its Node."""

import argparse

from aliquot.dialects import cards_of, standard_dialects
from aliquot.dialects.cordons import CORDON, NO, YES, names_of
from aliquot.errors import BadInput
from aliquot.kube.client import Client
from aliquot.kube.resources import NODES
from aliquot.kubectl.gpu.output import say
from aliquot.kubectl.gpu.session import Session
from aliquot.model import Gpu, NodeGpus

EPILOG = """examples:
  kubectl gpu cordon gpu-1/0                   # card 0 of node gpu-1 takes no new pods; running pods go on
  kubectl gpu cordon gpu-1/GPU-4a8b0198-7b9c-5cdf-8c02-b5e1a27063b7

It works with a dead agent, too: the server reads the annotation itself.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cards", nargs="+", metavar="NODE/CARD", help="a node, and a card of it by index or UUID")


def run(options: argparse.Namespace) -> int:
    return change(options, YES)


def change(options: argparse.Namespace, word: str | None) -> int:
    """Write a word about each card, or with None take back what was said."""
    session = Session(options)
    targets = [_target(text) for text in options.cards]

    async def write(client: Client) -> list[str]:
        return [await _write(client, node, card, word) for node, card in targets]

    for line in session.call(write):
        say(line)
    return 0


def _target(text: str) -> tuple[str, str]:
    node, slash, card = text.partition("/")
    if not node or not slash or not card:
        raise BadInput(f"{text!r} is not NODE/CARD, such as gpu-1/0")
    return node, card


async def _write(client: Client, name: str, card: str, word: str | None) -> str:
    """Raises KubeError, and BadInput for a card that the node does not have."""
    node = await client.get(NODES, name)
    cards = cards_of(node, standard_dialects())
    gpu = _card(cards, card)
    said = {own: node.metadata.annotations.get(f"{CORDON}{own}") for own in names_of(gpu, cards)}
    own_names = [str(gpu.index)] if cards.are_made_up else [gpu.uuid, str(gpu.index)]  # a made-up uuid has a slash
    wanted: dict[str, str | None] = {**dict.fromkeys(own_names), own_names[0]: word}
    what = f"card {gpu.index} of node {name} ({gpu.model or 'unknown model'})"
    if all(said.get(own) == value for own, value in wanted.items()):
        return f"{what} is {_state(word)} already{_parent(said, wanted)}"
    annotations = {f"{CORDON}{own}": value for own, value in wanted.items()}
    await client.patch(NODES, name, {"metadata": {"annotations": annotations}})
    return f"{what} is {_state(word)} now{_parent(said, wanted)}"


def _card(cards: NodeGpus, name: str) -> Gpu:
    found = cards.by_uuid.get(name) or (cards.by_index.get(int(name)) if name.isascii() and name.isdigit() else None)
    if found is None:
        known = ", ".join(str(gpu.index) for gpu in cards.gpus) or "none"
        raise BadInput(f"node {cards.node} has no card {name}; its cards are {known}")
    return found


def _state(word: str | None) -> str:
    return {YES: "cordoned", NO: "declared good", None: "not cordoned by a person"}[word]


def _parent(said: dict[str, str | None], own: dict[str, str | None]) -> str:
    """A word about a card holds for its MIG instances."""
    parents = [name for name, value in said.items() if value == YES and name not in own]
    return f"; the card that it is cut from, {parents[0]}, is cordoned" if parents else ""

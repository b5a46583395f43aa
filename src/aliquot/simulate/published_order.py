"""Files with an order of arrival, as the artifact of FGD's authors draws it."""

from collections.abc import Sequence
from pathlib import Path

from aliquot.errors import BadInput
from aliquot.plain import why
from aliquot.simulate.scenario import Arrival, Order, World


def read_order(path: Path, world: World) -> Order:
    """The rank of each node on the first line, and on the second the number of each pod that arrives; nodes and pods
    count in the order of their names. Raises BadInput."""
    try:
        lines = path.read_text().splitlines()
        ranks, numbers = (list(map(int, line.split())) for line in lines[:2])
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {why(error)}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not an order of arrival: it has no two lines of numbers") from error
    nodes = _by_name([node.name for node in world.nodes])
    pods = _by_name([pod.name for pod in world.pods])
    if len(ranks) != len(nodes):
        raise BadInput(f"{path}: its first line ranks {len(ranks)} nodes; the cluster has {len(nodes)}")
    if any(not 0 <= number < len(pods) for number in numbers):
        raise BadInput(f"{path}: its second line names pods that the list of {len(pods)} pods does not have")
    rank_of = dict(zip(nodes, ranks, strict=True))
    arrivals = [Arrival(pods[number], at) for at, number in enumerate(numbers)]
    return Order(path.stem, arrivals, [rank_of[place] for place in range(len(nodes))])


def _by_name(names: Sequence[str]) -> list[int]:
    return sorted(range(len(names)), key=names.__getitem__)

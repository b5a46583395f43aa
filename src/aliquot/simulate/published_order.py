"""Files with an order of arrival, as the artifact of FGD's authors draws it."""

from pathlib import Path

from aliquot.errors import BadInput
from aliquot.plain import why
from aliquot.simulate.scenario import Arrival, Order


def read_order(path: Path, nodes: int, pods: int) -> Order:
    """An order of arrival as FGD's authors drew it: the rank of each node, and the number of each pod that arrives, on
    two lines. Raises BadInput."""
    try:
        lines = path.read_text().splitlines()
        ranks, numbers = (list(map(int, line.split())) for line in lines[:2])
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {why(error)}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not an order of arrival: it has no two lines of numbers") from error
    if len(ranks) != nodes:
        raise BadInput(f"{path}: its first line ranks {len(ranks)} nodes; the cluster has {nodes}")
    if any(not 0 <= number < pods for number in numbers):
        raise BadInput(f"{path}: its second line names pods that the list of {pods} pods does not have")
    return Order(path.stem, [Arrival(number, at) for at, number in enumerate(numbers)], ranks)

"""Series of which only the largest are shown, so that Prometheus gets a bounded number."""

from collections.abc import Sequence

import numpy as np

from aliquot import metrics
from aliquot.engine import Floats


def largest(what: str, sizes: Sequence[float] | Floats, most: int) -> list[int]:
    """The places of at most `most` sizes, the largest first. Of equal ones the first stay, so that they do not change
    places from one scrape to the next. Says how many are not shown."""
    places = np.argsort(-np.asarray(sizes, np.float64), kind="stable")[:most].tolist()
    others = [row for row in metrics.HIDDEN.rows if row[0] != (what,)]
    metrics.HIDDEN.rows = sorted([*others, ((what,), float(len(sizes) - len(places)))])
    return [int(place) for place in places]

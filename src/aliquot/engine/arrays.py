"""The types of arrays that the engine and its policies pass around, and functions on their columns."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
SmallFloats: TypeAlias = NDArray[np.float32]
Ranks: TypeAlias = NDArray[np.int64 | np.float64 | np.float32]

ALL = slice(None)
"""All columns."""

_Item = TypeVar("_Item", bound=np.generic)

_LAST = np.iinfo(np.int64).max


def joined(pieces: Sequence[NDArray[_Item]]) -> NDArray[_Item]:
    """The pieces, concatenated. A single piece is returned as it is."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def masked(possible: Bools, ranks: Ranks) -> Ranks:
    """Ranks in which impossible cards come last."""
    return np.where(possible, ranks, _LAST if ranks.dtype.kind in "iu" else np.inf)


def lowest(keys: Ranks, count: int) -> Ints:
    """[count, width]: the rows of the lowest keys of each column; ties go to the lowest row."""
    if count == 1:
        return np.asarray(keys.argmin(axis=0)[np.newaxis])
    return np.asarray(np.argsort(keys.T, axis=1, kind="stable")[:, :count].T)


def enough(possible: Bools, count: int) -> Bools:
    """Columns with at least `count` possible rows."""
    if count == 1:
        return np.asarray(np.logical_or.reduce(possible, axis=0))
    return np.asarray(np.add.reduce(possible, axis=0, dtype=np.int16) >= count)


def alike(keys: Ints) -> list[Ints]:
    """The indexes of equal columns, grouped: a cluster has thousands of nodes but few kinds of nodes."""
    if not keys.shape[1]:
        return []
    whole = np.ascontiguousarray(keys.T).view(f"V{8 * keys.shape[0]}").ravel()
    _, inverse = np.unique(whole, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)

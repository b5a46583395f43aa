"""Kubernetes quantities: `3`, `1k`, `1.5Gi`, `500m`, `1e3`."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

from aliquot.errors import BadQuantity
from aliquot.model.bounds import LARGEST_QUANTITY, LONGEST_QUANTITY

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{letter + "i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)


@lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """The exact value. Raises BadQuantity for text that the API server would not accept either."""
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
    if match is None:
        raise BadQuantity(f"{text[:LONGEST_QUANTITY]!r} is not a Kubernetes quantity (such as 2, 1500m, 4Gi)")
    sign, digits, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    exact = Fraction(digits) * scale
    if exact > LARGEST_QUANTITY:
        raise BadQuantity(f"{text!r} is larger than any quantity can be ({LARGEST_QUANTITY})")
    return -exact if sign == "-" else exact


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """The value rounded up to an integer, as Kubernetes' `Quantity.Value()` does. Raises BadQuantity if it is
    negative."""
    return _up(text, 1)


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """The value in thousandths, as `Quantity.MilliValue()` returns it."""
    return _up(text, 1000)


def _up(text: str, scale: int) -> int:
    exact = parse(text)
    if exact < 0:
        raise BadQuantity(f"{text!r} is negative")
    return ceil(exact * scale)

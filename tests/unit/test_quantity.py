"""Kubernetes quantities, as the API server reads them."""

import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import BadQuantity
from aliquot.model.quantity import parse, whole

VALUES = [
    ("0", 0),
    ("3", 3),
    ("+3", 3),
    ("007", 7),
    ("1.5", Fraction(3, 2)),
    (".5", Fraction(1, 2)),
    ("5.", 5),
    ("1n", Fraction(1, 10**9)),
    ("1u", Fraction(1, 10**6)),
    ("1500m", Fraction(3, 2)),
    ("1k", 1000),
    ("1M", 10**6),
    ("2G", 2 * 10**9),
    ("2T", 2 * 10**12),
    ("2P", 2 * 10**15),
    ("2E", 2 * 10**18),
    ("1Ki", 1024),
    ("1Mi", 2**20),
    ("1.5Gi", 3 * 2**29),
    ("1Ti", 2**40),
    ("1Pi", 2**50),
    ("1Ei", 2**60),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1E", 10**18),
    ("12e-1", Fraction(6, 5)),
    ("1e+2", 100),
    ("1e-999", Fraction(1, 10**999)),
    ("-2", -2),
    ("9223372036854775807", 2**63 - 1),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[text for text, _ in VALUES])
def test_a_quantity_has_its_exact_value(text: str, value: int | Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1m", 1, id="a thousandth is one"),
        pytest.param("1n", 1, id="a billionth is one"),
        pytest.param("1001m", 2, id="a bit more than one is two"),
        pytest.param("2000m", 2, id="two thousand thousandths are two"),
        pytest.param("0.000", 0, id="nothing is nothing"),
        pytest.param("-0", 0, id="and so is minus nothing"),
    ],
)
def test_a_whole_number_is_rounded_up(text: str, value: int) -> None:
    assert whole(text) == value


BAD = [
    pytest.param("", id="nothing"),
    pytest.param(" 3", id="a blank before"),
    pytest.param("3 ", id="a blank behind"),
    pytest.param("3\n", id="a line break behind"),
    pytest.param("three", id="a word"),
    pytest.param("NaN", id="NaN"),
    pytest.param("inf", id="infinity"),
    pytest.param("Infinity", id="Infinity"),
    pytest.param("0x10", id="hexadecimal"),
    pytest.param("1_000", id="Python's digit groups"),
    pytest.param("1,5", id="a comma"),
    pytest.param("1.2.3", id="two points"),
    pytest.param(".", id="a point alone"),
    pytest.param("-", id="a sign alone"),
    pytest.param("--1", id="two signs"),
    pytest.param("Gi", id="a suffix alone"),
    pytest.param("1ki", id="ki, which is Ki"),
    pytest.param("1K", id="K, which is k"),
    pytest.param("1GB", id="GB"),
    pytest.param("1Gib", id="Gib"),
    pytest.param("1e", id="half an exponent"),
    pytest.param("1e3Gi", id="an exponent and a suffix"),
    pytest.param("1e1234", id="an exponent of four digits"),
    pytest.param("\u0663", id="an Arabic digit"),
    pytest.param("\uff13", id="a full-width digit"),
    pytest.param("1²", id="a superscript"),
    pytest.param("9" * 65, id="sixty-five digits"),
    pytest.param("1" * 10_000_000, id="ten million digits"),
    pytest.param("1e999", id="1e999"),
    pytest.param("10E", id="more than 2^63"),
    pytest.param("9223372036854775808", id="2^63"),
    pytest.param("-9223372036854775808", id="minus 2^63"),
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_quantity_is_refused_with_a_short_text(text: str) -> None:
    with pytest.raises(BadQuantity) as refusal:
        parse(text)
    assert len(str(refusal.value)) < 300


def test_what_is_far_too_long_is_refused_at_once() -> None:
    """A number of so many digits would take minutes to compute: it is less work than to look at each of them."""
    text = "1" * 10_000_000

    def cost(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def refuse() -> None:
        with pytest.raises(BadQuantity):
            parse(text)

    assert cost(refuse) < cost(lambda: [letter for letter in text if letter == "2"])


@pytest.mark.parametrize("text", ["-1", "-1m", "-0.5Gi"])
def test_a_negative_amount_is_refused_where_an_amount_is_meant(text: str) -> None:
    with pytest.raises(BadQuantity, match="is negative"):
        whole(text)


@given(st.integers(0, 2**63 - 1))
def test_an_integer_and_its_text_are_the_same(value: int) -> None:
    assert whole(str(value)) == value == parse(str(value))


@given(st.decimals(0, 10**9, places=3, allow_nan=False))
def test_a_decimal_number_in_thousandths_is_the_same(value: Decimal) -> None:
    assert parse(f"{int(value * 1000)}m") == parse(format(value, "f")) == Fraction(value)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused_and_nothing_else(text: str) -> None:
    try:
        value = whole(text)
    except BadQuantity:
        return
    assert 0 <= value < 2**63
    assert text.isascii()

"""The validity dates of a certificate, as OpenSSL and others encode them."""

import base64
import ssl
from datetime import UTC, datetime

import pytest
import trustme

from aliquot.endpoints.validity import Validity, validity_of

AUTHORITY = trustme.CA()


def pem(since: datetime, until: datetime) -> bytes:
    issued = AUTHORITY.issue_cert("a", not_before=since, not_after=until)
    return b"".join(one.bytes() for one in issued.cert_chain_pems)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        pytest.param((2000, 1, 1), (2049, 12, 31, 23, 59, 59), id="two-digit years"),
        pytest.param((2024, 2, 29, 12, 30, 1), (2050, 1, 1), id="one four-digit year"),
        pytest.param((2050, 1, 1), (3000, 1, 1), id="four-digit years"),
        pytest.param((1950, 1, 1), (1999, 12, 31), id="long ago"),
    ],
)
def test_the_dates_are_read(since: tuple[int, int, int], until: tuple[int, int, int]) -> None:
    begin, end = datetime(*since, tzinfo=UTC), datetime(*until, tzinfo=UTC)
    read = validity_of(pem(begin, end))
    assert read == Validity(begin.timestamp(), end.timestamp())


def test_the_dates_of_the_first_certificate_count() -> None:
    first, second = (pem(datetime(year, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)) for year in (2001, 2002))
    assert validity_of(b"a word before\n" + first + second) == validity_of(first)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", id="no base64"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", id="no certificate"),
    ],
)
def test_a_file_without_a_certificate_is_rejected(text: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        validity_of(text)


def test_a_truncated_certificate_is_rejected() -> None:
    der = ssl.PEM_cert_to_DER_cert(AUTHORITY.cert_pem.bytes().decode())
    for size in range(len(der)):
        cut = base64.encodebytes(der[:size])
        with pytest.raises(ValueError):  # noqa: PT011
            validity_of(b"-----BEGIN CERTIFICATE-----\n" + cut + b"-----END CERTIFICATE-----")


def test_a_certificate_is_valid_from_its_first_second_to_its_last() -> None:
    span = Validity(100, 200)
    assert [span.trouble(now) for now in (99, 100, 200, 201)] == [
        "the certificate is not valid before 1970-01-01T00:01:40Z",
        "",
        "",
        "the certificate expired at 1970-01-01T00:03:20Z",
    ]

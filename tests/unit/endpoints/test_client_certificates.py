"""Which client certificates a CA vouches for."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aliquot.endpoints.client_certificates import Authorities, ClientCertificate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Made = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
_CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
_CA = x509.BasicConstraints(ca=True, path_length=None)


def made(name: str, by: Made | None, *extensions: x509.ExtensionType, days: int = 1) -> Made:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=days))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(by[1] if by else key, hashes.SHA256()), key


def signs(allowed: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, False, False, False, allowed, False, False, False)


ROOT = made("ca", None, _CA)
INTERMEDIATE = made("intermediate", ROOT, _CA)
NO_CA = made("leaf", ROOT, x509.BasicConstraints(ca=False, path_length=None))
BARE = made("bare", ROOT)
SIGNS_NOTHING = made("no signatures", ROOT, _CA, signs(False))
EXPIRED = made("old", ROOT, _CA, days=0)
NAMESAKE = made("ca", None, _CA)


@pytest.mark.parametrize(
    ("trusted", "by", "sent", "expected"),
    [
        pytest.param([ROOT], ROOT, [], True, id="signed by it"),
        pytest.param([NAMESAKE, ROOT], ROOT, [], True, id="one of two of the same name"),
        pytest.param([NAMESAKE], ROOT, [], False, id="a CA of the same name"),
        pytest.param([], ROOT, [], False, id="no CA"),
        pytest.param([ROOT], INTERMEDIATE, [INTERMEDIATE], True, id="through an intermediate that it sent"),
        pytest.param([ROOT], INTERMEDIATE, [], False, id="through one that it did not send"),
        pytest.param([INTERMEDIATE], INTERMEDIATE, [], True, id="an intermediate is trusted itself"),
        pytest.param([ROOT], NO_CA, [NO_CA], False, id="signed by a certificate that is no CA"),
        pytest.param([ROOT], BARE, [BARE], False, id="signed by a certificate that does not say it is a CA"),
        pytest.param([ROOT], SIGNS_NOTHING, [SIGNS_NOTHING], False, id="signed by a CA that may not sign"),
        pytest.param([ROOT], EXPIRED, [EXPIRED], False, id="through an expired intermediate"),
    ],
)
def test_a_chain_must_lead_to_a_trusted_ca(
    trusted: Sequence[Made], by: Made, sent: Sequence[Made], expected: bool
) -> None:
    shown = ClientCertificate(made("client", by, _CLIENT)[0], tuple(one[0] for one in sent))
    later = NOW + timedelta(minutes=1)
    assert Authorities(one[0] for one in trusted).vouch_for(shown, later) is expected


@pytest.mark.parametrize(
    ("extensions", "moment", "expected"),
    [
        pytest.param([_CLIENT], NOW, True, id="now"),
        pytest.param([_CLIENT], NOW + timedelta(days=2), False, id="expired"),
        pytest.param([_CLIENT], NOW - timedelta(days=2), False, id="not yet valid"),
        pytest.param([], NOW, False, id="for no use in particular"),
        pytest.param([x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])], NOW, False, id="for servers"),
    ],
)
def test_it_must_be_for_clients_and_valid(
    extensions: list[x509.ExtensionType], moment: datetime, expected: bool
) -> None:
    shown = ClientCertificate(made("client", ROOT, *extensions)[0])
    assert Authorities([ROOT[0]]).vouch_for(shown, moment) is expected

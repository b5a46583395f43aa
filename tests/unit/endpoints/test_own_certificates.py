"""The query API's own certificates over the years: there is always a valid one, and a client always trusts it."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from aliquot.endpoints.own_certificates.bundle import SETTLE, Bundle, Terms, fresh, renewed
from aliquot.endpoints.own_certificates.issuing import KeyPair, until
from aliquot.errors import BadRecord

HOST = "gpu.kube-system.svc"
TERMS = Terms((HOST, "gpu.kube-system", "localhost"), timedelta(days=90))
START = datetime(2026, 1, 1, tzinfo=UTC)


def trusts(trusted: bytes, pair: KeyPair, now: datetime) -> bool:
    """Whether a strict client that trusts these CAs accepts this certificate at that time."""
    rules = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(trusted))).time(now)
    try:
        rules.build_server_verifier(x509.DNSName(HOST)).verify(x509.load_pem_x509_certificate(pair.certificate), [])
    except x509.verification.VerificationError:
        return False
    return True


def test_a_fresh_bundle_serves_all_names_and_survives_the_secret() -> None:
    bundle = fresh(TERMS, START)
    assert trusts(bundle.trusted(), bundle.pair, START)
    assert bundle.pair.serves(TERMS.names)
    assert Bundle.read(bundle.data()) == bundle
    assert sorted(bundle.data()) == ["ca-cert.pem", "ca-key.pem", "cert.pem", "key.pem", "tls.crt", "tls.key"]
    assert renewed(bundle, TERMS, START, switch=False) is bundle, "nothing is due"


def test_over_ten_years_clients_that_lag_behind_trust_every_certificate() -> None:
    """The API server learns CAs `SETTLE` late at worst, and a replica may serve the certificate before the last one."""
    bundle, now = fresh(TERMS, START), START
    known, last = bundle.trusted(), bundle.pair
    cas, pairs = {bundle.ca.certificate}, {bundle.pair.certificate}
    while now < START + timedelta(days=365 * 10):
        now += timedelta(days=4)
        assert trusts(known, bundle.pair, now)
        assert trusts(bundle.trusted(), last, now) or last.until < now
        switch = bundle.wants_to_switch(TERMS, now)
        after = Bundle.read(renewed(bundle, TERMS, now, switch=switch).data())
        assert trusts(known, after.pair, now), "who has not heard of this change trusts its certificate, too"
        assert now < after.pair.until - TERMS.lifetime / 4
        if after.pair != bundle.pair:
            last = bundle.pair
        cas.add(after.ca.certificate)
        pairs.add(after.pair.certificate)
        known, bundle = after.trusted(), after
    assert 4 <= len(cas) <= 6
    assert len(pairs) > 50


def test_a_new_ca_is_known_before_it_signs_and_the_old_one_until_its_last_certificate_expires() -> None:
    bundle = fresh(TERMS, START)
    now = bundle.ca.until - 2 * TERMS.lifetime + timedelta(hours=1)
    first = renewed(bundle, TERMS, now, switch=False)
    assert first.next_ca is not None
    assert first.ca == bundle.ca
    assert not first.wants_to_switch(TERMS, now)
    later = now + SETTLE
    assert first.wants_to_switch(TERMS, later)
    assert renewed(first, TERMS, later, switch=False).ca == bundle.ca, "the API server does not know the new one"

    second = renewed(first, TERMS, later, switch=True)
    assert second.ca == first.next_ca
    assert second.former is not None
    assert x509.load_pem_x509_certificates(second.trusted())[1:] == x509.load_pem_x509_certificates(
        first.ca.certificate
    )
    assert trusts(second.trusted(), first.pair, later), "another replica still serves it"

    gone = until(second.former.certificate)
    assert renewed(second, TERMS, gone, switch=False).former is not None
    assert renewed(second, TERMS, gone + timedelta(seconds=1), switch=False).former is None


def test_a_ca_that_nobody_learned_signs_before_the_old_one_expires() -> None:
    """For clusters where somebody else writes caBundle, or nobody verifies."""
    bundle = fresh(TERMS, START)
    now = bundle.ca.until - TERMS.lifetime + timedelta(hours=1)
    waiting = renewed(bundle, TERMS, now, switch=False)
    assert renewed(waiting, TERMS, now, switch=False).ca == waiting.next_ca


def test_other_names_need_another_certificate_of_the_same_ca() -> None:
    bundle, terms = fresh(TERMS, START), Terms(("other.ns.svc",), TERMS.lifetime)
    moved = renewed(bundle, terms, START, switch=False)
    assert moved.pair.serves(terms.names)
    assert moved.ca == bundle.ca


def originals() -> dict[str, bytes]:
    """A Secret of the original: RSA, ten years, without our second name."""
    key, server = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook-cert-ca")])

    def built(public: rsa.RSAPublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().issuer_name(name).public_key(public).serial_number(7)
        return builder.not_valid_before(START).not_valid_after(START + timedelta(days=3650))

    ca = built(key.public_key()).subject_name(name).add_extension(x509.BasicConstraints(True, None), True)
    leaf = built(server.public_key()).subject_name(x509.Name([]))
    leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName(HOST)]), False)

    def pem(secret: rsa.RSAPrivateKey) -> bytes:
        return secret.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())

    return {
        "ca-key.pem": pem(key),
        "ca-cert.pem": ca.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
        "key.pem": pem(server),
        "cert.pem": leaf.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
    }


def test_the_original_s_secret_is_taken_over() -> None:
    bundle = Bundle.read(originals())
    ours = renewed(bundle, TERMS, START + timedelta(days=1), switch=False)
    assert ours.ca == bundle.ca, "the API server knows it already"
    assert ours.pair.serves(TERMS.names)
    assert bundle.ca.issued(ours.pair.certificate)


@pytest.mark.parametrize(
    "change",
    [
        {"ca-key.pem": b""},
        {"ca-key.pem": b"no key"},
        {"key.pem": fresh(TERMS, START).pair.key},
        {"cert.pem": b""},
        {"ca-cert.pem": fresh(TERMS, START).ca.certificate},
        {"ca-cert.pem": fresh(TERMS, START).pair.certificate, "ca-key.pem": fresh(TERMS, START).pair.key},
        {"next-ca-cert.pem": b"no certificate"},
        {"former-ca-cert.pem": fresh(TERMS, START).ca.certificate},
        {"former-ca-cert.pem": b"no certificate", "former-cert.pem": fresh(TERMS, START).pair.certificate},
    ],
)
def test_an_unusable_secret_is_recognized(change: dict[str, bytes]) -> None:
    with pytest.raises(BadRecord):
        Bundle.read({**fresh(TERMS, START).data(), **change})


def test_what_a_fast_clock_made_is_replaced_when_the_clock_is_right_again() -> None:
    years, hour = timedelta(days=4000), timedelta(hours=1)
    assert not fresh(TERMS, START + years).can_sign(START)
    assert fresh(TERMS, START + hour).can_sign(START), "clocks differ a little"
    right = fresh(TERMS, START)
    early = renewed(right, TERMS, right.pair.until - hour, switch=False)
    assert early.ca == right.ca
    assert not trusts(early.trusted(), early.pair, START)
    healed = renewed(early, TERMS, START, switch=False)
    assert trusts(healed.trusted(), healed.pair, START)

"""``x-forwarded-client-cert``, also of certificates that were made to deceive."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gateway.certs.make import make_ca, make_key, make_leaf
from gateway.proxy.client_certificate import forwarded_client_cert
from gateway.proxy.secure import Handshakes

if TYPE_CHECKING:
    from gateway.proxy.opening import Opening

CA = make_ca()


def test_in_envoys_form():
    leaf = make_leaf(CA, ["client.test", "spiffe://test/a", "*.b.test"], client=True).certificate
    digest = leaf.fingerprint(hashes.SHA256()).hex()
    assert (
        forwarded_client_cert(leaf)
        == (
            f'Hash={digest};Subject="CN=client.test";URI="spiffe://test/a";'
            "DNS=client.test;DNS=*.b.test"
        ).encode()
    )


def test_names_that_would_be_more_than_names():
    key = make_key()
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, 'a";Subject="root\r\nx: y, é\\')]
    )
    hostile = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(CA.certificate.not_valid_before_utc)
        .not_valid_after(CA.certificate.not_valid_after_utc)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier('x:";,Hash=1')]), False
        )
        .sign(key, hashes.SHA256())
    )
    told = forwarded_client_cert(hostile)
    assert b"\r" not in told
    assert b"\n" not in told
    assert told.isascii()
    # Quotes that are not escaped stand at the ends of values only.
    bare = told.replace(b"\\\\", b"").replace(b'\\"', b"")
    assert [part[-2:] for part in bare.split(b'"')[:-1:2]] == [b"t=", b"I="]


def test_the_oldest_handshake_goes():
    handshakes = Handshakes(2)
    one, two, three, four = (cast("Opening", object()) for _ in range(4))
    assert handshakes.begin(one) is None
    assert handshakes.begin(two) is None
    assert handshakes.begin(three) is one
    handshakes.end(two)
    handshakes.end(two)
    assert handshakes.begin(four) is None
    assert len(handshakes) == 2

"""OCSP responses: good ones, and each way to be bad."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.x509 import ocsp as x509_ocsp
from hypothesis import given
from hypothesis import strategies as st

from gateway.certs.make import make_ca, make_leaf, make_ocsp_response, make_ocsp_signer
from gateway.certs.responder import FAULTS, Behaviour, Fault, Responder
from gateway.tls import ocsp

from .pair import CA, LEAF

NOW = datetime.now(UTC).replace(microsecond=0)
LATER = timedelta(hours=1)


def response(**how: Any) -> bytes:
    signer = how.pop("signer", CA)
    return make_ocsp_response(LEAF.certificate, CA.certificate, signer, **how)


def verify(der: bytes, **how: Any) -> ocsp.Staple:
    now = how.pop("now", None) or datetime.now(UTC)
    return ocsp.verify(der, LEAF.certificate, CA.certificate, now, **how)


def test_signed_by_the_issuer_or_by_one_it_authorized():
    for signer in (CA, make_ocsp_signer(CA)):
        staple = verify(response(signer=signer, this_update=NOW, validity=LATER))
        assert staple.this_update == NOW.timestamp()
        assert staple.expires_at == (NOW + LATER).timestamp()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"signer": make_ca()}, "has not authorized"),
        ({"signer": make_ocsp_signer(CA, authorized=False)}, "not for signing"),
        ({"signer": make_ocsp_signer(make_ca())}, "has not authorized"),
        ({"signer": make_ocsp_signer(CA, days=0.01)}, "signer's certificate is out of date"),
        ({"this_update": NOW - 2 * LATER, "validity": LATER}, "out of date since"),
        ({"this_update": NOW + LATER}, "not valid before"),
        ({"status": x509_ocsp.OCSPCertStatus.UNKNOWN}, "does not know"),
        ({"nonce": b"another one" * 2}, "nonce"),
    ],
)
def test_what_must_not_be_served(how: dict[str, Any], why: str):
    with pytest.raises(ocsp.OcspError, match=why):
        verify(response(**how), nonce=b"ours" * 8)


def test_about_another_certificate():
    other = make_leaf(CA, ["other.test"])
    der = make_ocsp_response(other.certificate, CA.certificate, CA)
    with pytest.raises(ocsp.OcspError, match="not about"):
        verify(der)
    # The same serial number under another issuer.
    namesake = make_ca()
    der = make_ocsp_response(LEAF.certificate, namesake.certificate, CA)
    with pytest.raises(ocsp.OcspError, match="another issuer"):
        verify(der)


def test_revoked():
    with pytest.raises(ocsp.RevokedError, match="is revoked since"):
        verify(response(status=x509_ocsp.OCSPCertStatus.REVOKED))


def test_clocks_may_differ_by_five_minutes():
    der = response(this_update=NOW + timedelta(minutes=4))
    verify(der, now=NOW)
    der = response(this_update=NOW - LATER, validity=LATER - timedelta(minutes=4))
    verify(der, now=NOW)


def test_without_next_update():
    der = response(this_update=NOW - 100 * LATER, validity=None)
    staple = verify(der, now=NOW, validity_s=60.0)
    assert staple.expires_at == NOW.timestamp() + 60.0
    with pytest.raises(ocsp.OcspError, match="too long ago"):
        verify(der, now=NOW, validity_s=60.0, received_at=NOW.timestamp() - 61.0)


@given(st.binary(max_size=300))
def test_garbage(data: bytes):
    with pytest.raises(ocsp.OcspError):
        verify(data)


@given(st.integers(0, 10_000))
def test_cut(size: int):
    der = GOOD[: size % len(GOOD)]
    with pytest.raises(ocsp.OcspError):
        verify(der)


GOOD = response()


def test_too_much():
    with pytest.raises(ocsp.OcspError, match="larger than"):
        verify(GOOD + bytes(ocsp.MAX_RESPONSE))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_the_responder_is_found(fault: Fault):
    responder = Responder(CA, make_ocsp_signer(CA), [LEAF.certificate], behaviour=Behaviour(fault))
    nonce = bytes(range(32))
    try:
        status, der = responder.answer(ocsp.build_request(LEAF.certificate, CA.certificate, nonce))
    finally:
        responder._server.server_close()
    if fault == "none":
        verify(der, nonce=nonce)
    elif fault != "http-500":
        assert status == 200
        with pytest.raises(ocsp.OcspError):
            verify(der, nonce=nonce)


def test_an_rsa_authority():
    from cryptography.hazmat.primitives.asymmetric import rsa

    leaf = make_leaf(CA, ["localhost"], rsa_key=True)
    assert isinstance(leaf.key, rsa.RSAPrivateKey)
    # Who signs is an RSA key that the CA has authorized.
    der = make_ocsp_response(leaf.certificate, CA.certificate, make_ocsp_signer(CA))
    ocsp.verify(der, leaf.certificate, CA.certificate, datetime.now(UTC))


def test_when_to_ask_again():
    rng = random.Random(1)
    now = NOW.timestamp()
    staple = ocsp.Staple(b"", now, now + 1000.0)
    times = [ocsp.refresh_at(staple, now, rng) - now for _ in range(200)]
    assert 400.0 <= min(times) < 420.0 < 580.0 < max(times) <= 600.0
    # One that was made in advance.
    old = ocsp.Staple(b"", now - 900.0, now + 100.0)
    assert now + 40.0 <= ocsp.refresh_at(old, now, rng) <= now + 60.0


def test_waits_after_failures():
    rng = random.Random(1)
    for failures, longest in ((1, 5.0), (2, 10.0), (5, 80.0), (50, 3600.0)):
        waits = [ocsp.retry_delay_s(failures, rng) for _ in range(100)]
        assert longest / 2 <= min(waits)
        assert max(waits) <= longest


def test_where_the_responder_is():
    leaf = make_leaf(CA, ["x.test"], ocsp_url="http://ocsp.test/")
    assert ocsp.responder_urls(leaf.certificate) == ["http://ocsp.test/"]
    assert ocsp.responder_urls(LEAF.certificate) == []

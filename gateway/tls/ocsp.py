"""OCSP (RFC 6960): asking, verifying what is answered, and when to ask again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

MAX_RESPONSE: Final = 65_536
"""Octets of a response that are taken; with a delegated signer's chain they are about 2,000."""

SKEW_S: Final = 300.0
"""How far the responder's clock may be from ours, in seconds (what Windows and Apache allow)."""

REQUEST_TYPE: Final = "application/ocsp-request"
RESPONSE_TYPE: Final = "application/ocsp-response"

_RETRY_FIRST_S: Final = 5.0
_RETRY_LONGEST_S: Final = 3600.0
_SHORTEST_REFRESH_S: Final = 1.0


class OcspError(Exception):
    """A response that must not be served; the message says why."""


class RevokedError(OcspError):
    """The certificate is revoked."""


class Staple(NamedTuple):
    """A response that was verified. Times are seconds of the Unix epoch; ``expires_at`` is its
    nextUpdate, or where it has none the time it was received with the validity given then."""

    der: bytes
    this_update: float
    expires_at: float


def build_request(leaf: x509.Certificate, issuer: x509.Certificate, nonce: bytes) -> bytes:
    """A request for the status of ``leaf``, in DER. ``nonce`` (RFC 9654), if not empty, has up to
    128 octets.

    The certificate's id is made with SHA-1, as RFC 5019 section 2.1.1 says: not every responder
    knows another one, and nothing depends on its strength.
    """
    builder = ocsp.OCSPRequestBuilder().add_certificate(leaf, issuer, hashes.SHA1())
    if nonce:
        builder = builder.add_extension(x509.OCSPNonce(nonce), critical=False)
    return builder.build().public_bytes(Encoding.DER)


def responder_urls(leaf: x509.Certificate) -> list[str]:
    """Where the certificate says that its status is told (authorityInfoAccess)."""
    try:
        access = leaf.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except x509.ExtensionNotFound:
        return []
    return [
        item.access_location.value
        for item in access
        if item.access_method == AuthorityInformationAccessOID.OCSP
        and isinstance(item.access_location, x509.UniformResourceIdentifier)
        and item.access_location.value.lower().startswith(("http://", "https://"))
    ]


def verify(
    der: bytes,
    leaf: x509.Certificate,
    issuer: x509.Certificate,
    now: datetime,
    *,
    nonce: bytes = b"",
    validity_s: float = 3600.0,
    received_at: float | None = None,
) -> Staple:
    """Check a response as RFC 6960 section 3.2 asks.

    ``nonce`` is what was sent: a response may leave it out (RFC 9654 section 2.1: responders serve
    answers made in advance) and must not change it. ``validity_s`` holds for a response without
    nextUpdate, from ``received_at`` on (seconds of the Unix epoch, ``now`` by default).

    Raises:
        RevokedError: it is good, and says that the certificate is revoked.
        OcspError: it is not good.
    """
    if len(der) > MAX_RESPONSE:
        raise OcspError(f"larger than {MAX_RESPONSE} octets")
    try:
        response = ocsp.load_der_ocsp_response(der)
        status = response.response_status
        if status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise OcspError(f"the responder answers {status.name.lower()}")
        single = _single_for(response.responses, leaf, issuer)
        _check_signature(response, issuer, now)
        _check_nonce(response, nonce)
        this_update = single.this_update_utc
        next_update = single.next_update_utc
        certificate_status = single.certificate_status
        revoked_at = single.revocation_time_utc
    except OcspError:
        raise
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise OcspError(f"malformed ({error})") from None
    skew = timedelta(seconds=SKEW_S)
    if this_update > now + skew:
        raise OcspError(f"not valid before {_show(this_update)}")
    if next_update is not None and next_update < now - skew:
        raise OcspError(f"out of date since {_show(next_update)}")
    if certificate_status is ocsp.OCSPCertStatus.REVOKED:
        when = f" since {_show(revoked_at)}" if revoked_at is not None else ""
        raise RevokedError(f"the certificate is revoked{when}")
    if certificate_status is not ocsp.OCSPCertStatus.GOOD:
        raise OcspError("the responder does not know the certificate")
    if next_update is not None:
        expires_at = next_update.timestamp()
    else:
        expires_at = (now.timestamp() if received_at is None else received_at) + validity_s
        if expires_at < now.timestamp():
            raise OcspError("without nextUpdate, and received too long ago")
    return Staple(der, this_update.timestamp(), expires_at)


def refresh_at(staple: Staple, now: float, rng: random.Random) -> float:
    """When to ask again: at half of the validity, up to a tenth of it earlier or later, so that
    not all hosts ask at once; in seconds of the Unix epoch."""
    validity = staple.expires_at - staple.this_update
    wanted = staple.this_update + validity * rng.uniform(0.4, 0.6)
    if wanted <= now:
        # An answer made in advance, already past its half: half of what is left.
        wanted = now + (staple.expires_at - now) * rng.uniform(0.4, 0.6)
    return max(wanted, now + _SHORTEST_REFRESH_S)


def retry_delay_s(failures: int, rng: random.Random) -> float:
    """Seconds to wait after so many failures in a row: 5 s, doubled up to an hour, with jitter."""
    longest = min(_RETRY_FIRST_S * 2.0 ** min(failures - 1, 20), _RETRY_LONGEST_S)
    return longest * rng.uniform(0.5, 1.0)


def _single_for(
    singles: Iterable[ocsp.OCSPSingleResponse], leaf: x509.Certificate, issuer: x509.Certificate
) -> ocsp.OCSPSingleResponse:
    found = "no certificate"
    for single in singles:
        if single.serial_number != leaf.serial_number:
            found = f"serial number {single.serial_number:x}"
            continue
        algorithm = single.hash_algorithm
        if single.issuer_name_hash != _hash(
            algorithm, issuer.subject.public_bytes()
        ) or single.issuer_key_hash != _hash(algorithm, _key_octets(issuer)):
            found = "a certificate of another issuer"
            continue
        return single
    raise OcspError(f"it is about {found}, not about {leaf.serial_number:x}")


def _check_signature(response: ocsp.OCSPResponse, issuer: x509.Certificate, now: datetime) -> None:
    signer = issuer
    if not _is_responder(response, issuer):
        signer = _delegate(response, issuer, now)
    key = signer.public_key()
    signature, signed = response.signature, response.tbs_response_bytes
    try:
        algorithm = response.signature_hash_algorithm
        if isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(signature, signed, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(signature, signed, ec.ECDSA(algorithm))
        elif isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, signed)
        else:
            raise OcspError("signed with a kind of key that is not known here")
    except InvalidSignature:
        raise OcspError("its signature is wrong") from None


def _is_responder(response: ocsp.OCSPResponse, certificate: x509.Certificate) -> bool:
    """Whether the response names ``certificate`` as its signer (RFC 6960 section 4.2.1)."""
    if response.responder_key_hash is not None:
        return response.responder_key_hash == _hash(hashes.SHA1(), _key_octets(certificate))
    return response.responder_name == certificate.subject


def _delegate(
    response: ocsp.OCSPResponse, issuer: x509.Certificate, now: datetime
) -> x509.Certificate:
    """The signer that the issuer has authorized (RFC 6960 section 4.2.2.2)."""
    for candidate in response.certificates:
        if not _is_responder(response, candidate):
            continue
        try:
            candidate.verify_directly_issued_by(issuer)
        except (InvalidSignature, ValueError, TypeError):
            raise OcspError("signed by one whom the issuer has not authorized") from None
        try:
            usage = candidate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except x509.ExtensionNotFound:
            usage = x509.ExtendedKeyUsage([])
        if ExtendedKeyUsageOID.OCSP_SIGNING not in usage:
            raise OcspError("its signer's certificate is not for signing OCSP responses")
        if not candidate.not_valid_before_utc <= now <= candidate.not_valid_after_utc:
            raise OcspError("its signer's certificate is out of date")
        return candidate
    raise OcspError("signed by somebody other than the issuer")


def _check_nonce(response: ocsp.OCSPResponse, nonce: bytes) -> None:
    if not nonce:
        return
    try:
        answered = response.extensions.get_extension_for_class(x509.OCSPNonce).value.nonce
    except x509.ExtensionNotFound:
        return
    if answered != nonce:
        raise OcspError("it answers another request (nonce)")


def _key_octets(certificate: x509.Certificate) -> bytes:
    """The BIT STRING of the public key, without tag, length and unused bits (RFC 6960 4.1.1)."""
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return key.public_bytes(Encoding.DER, PublicFormat.PKCS1)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    raise OcspError("the issuer has a kind of key that is not known here")


def _hash(algorithm: hashes.HashAlgorithm, data: bytes) -> bytes:
    digest = hashes.Hash(algorithm)
    digest.update(data)
    return digest.finalize()


def _show(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")

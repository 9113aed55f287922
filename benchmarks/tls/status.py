"""OCSP for a client: the question, and whether the answer (or the staple) is to be believed."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID


class StatusError(Exception):
    """There is no response, or it does not say that the certificate is good."""


def question(leaf: x509.Certificate, issuer: x509.Certificate) -> bytes:
    """The request in DER, without a nonce: answers may be those of a cache."""
    builder = ocsp.OCSPRequestBuilder().add_certificate(leaf, issuer, hashes.SHA1())
    return builder.build().public_bytes(Encoding.DER)


def check(answer: bytes, leaf: x509.Certificate, issuer: x509.Certificate) -> None:
    """Raise StatusError unless ``answer`` says, now and signed, that ``leaf`` is good."""
    if not answer:
        raise StatusError("no OCSP response")
    try:
        response = ocsp.load_der_ocsp_response(answer)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise StatusError(f"the responder says {response.response_status.name}")
        _verify(response, _signer(response, issuer))
    except (ValueError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise StatusError(f"not an OCSP response to believe: {error!r}") from error
    if response.serial_number != leaf.serial_number:
        raise StatusError("the response is about another certificate")
    if response.certificate_status is not ocsp.OCSPCertStatus.GOOD:
        raise StatusError(f"the certificate is {response.certificate_status.name}")
    now = datetime.now(UTC)
    end = response.next_update_utc
    if response.this_update_utc > now or (end is not None and end < now):
        raise StatusError("the response is not of today")


def _signer(response: ocsp.OCSPResponse, issuer: x509.Certificate) -> x509.Certificate:
    """The issuer, or whom it lets sign (RFC 6960 section 4.2.2.2)."""
    if not response.certificates:
        return issuer
    signer = response.certificates[0]
    signer.verify_directly_issued_by(issuer)
    usage = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if ExtendedKeyUsageOID.OCSP_SIGNING not in usage:
        raise StatusError("the signer may not sign")
    return signer


def _verify(response: ocsp.OCSPResponse, signer: x509.Certificate) -> None:
    key = signer.public_key()
    algorithm = response.signature_hash_algorithm
    if not isinstance(key, ec.EllipticCurvePublicKey) or algorithm is None:
        raise StatusError("signed with a key of another kind")
    key.verify(response.signature, response.tbs_response_bytes, ec.ECDSA(algorithm))

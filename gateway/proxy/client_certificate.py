"""What is told upstream of a client's certificate."""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding


def forwarded_client_cert(certificate: x509.Certificate) -> bytes:
    """An element of ``x-forwarded-client-cert`` in Envoy's form: ``Hash`` (SHA-256 of the DER),
    ``Subject`` (RFC 4514), then each ``URI`` and ``DNS`` of the subject's alternative names."""
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    # OpenSSL has verified it; what cannot be read of it nevertheless is not told.
    try:
        subject = certificate.subject.rfc4514_string()
    except ValueError:
        subject = ""
    parts = [f"Hash={digest}", f"Subject={_quoted(subject)}"]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        names = x509.SubjectAlternativeName([])
    for key, kind in (("URI", x509.UniformResourceIdentifier), ("DNS", x509.DNSName)):
        parts += [f"{key}={_quoted_if_needed(name)}" for name in names.get_values_for_type(kind)]
    return ";".join(parts).encode("ascii")


def _quoted(text: str) -> str:
    """A quoted string; what is no printable ASCII is percent-encoded, so that no name can end the
    element or the field."""
    octets = "".join(
        chr(octet) if 0x20 <= octet < 0x7F and octet != 0x25 else f"%{octet:02X}"
        for octet in text.encode()
    )
    escaped = octets.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quoted_if_needed(text: str) -> str:
    plain = text.isascii() and text.replace("-", "").replace(".", "").replace("*", "").isalnum()
    return text if plain else _quoted(text)

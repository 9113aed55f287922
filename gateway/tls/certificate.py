"""A certificate with its chain and key, as it stands in the files, and its staple."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from gateway.errors import GatewayError

PrivateKey = EllipticCurvePrivateKey | RSAPrivateKey | Ed25519PrivateKey | Ed448PrivateKey

MAX_FILE: Final = 1_048_576
"""Octets of a PEM file that are read at most."""


class CertificateError(GatewayError):
    """A certificate that can't be served; the message names the file."""


class Certificate:
    """``chain`` is what is sent after ``leaf``. ``names`` are the DNS names and IP addresses it is
    for, in lower case. ``staple`` is the OCSP response to send with it, empty for none, and may be
    set at any time; ``must_staple`` says that clients insist on one (RFC 7633).
    """

    def __init__(
        self, leaf: x509.Certificate, chain: tuple[x509.Certificate, ...], key: PrivateKey
    ) -> None:
        self.leaf = leaf
        self.chain = chain
        self.key = key
        self.names = _names(leaf)
        self.kind: Literal["ecdsa", "other"] = (
            "ecdsa" if isinstance(key, EllipticCurvePrivateKey) else "other"
        )
        self.must_staple = _must_staple(leaf)
        self.expires_at = leaf.not_valid_after_utc.timestamp()
        self.fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).hexdigest()
        self.staple = b""

    @property
    def issuer(self) -> x509.Certificate | None:
        """The certificate that signed the leaf, if the file has it."""
        for candidate in (*self.chain, self.leaf):
            if is_issuer(candidate, self.leaf):
                return candidate
        return None

    @classmethod
    def read(cls, certificate_file: str, key_file: str) -> Certificate:
        """Read a pair of PEM files; the leaf comes first.

        Raises:
            CertificateError: a file can't be read, or the two don't belong together.
        """
        chain = read_chain(certificate_file)
        key = _read_key(key_file)
        try:
            fits = _public(key.public_key()) == _public(chain[0].public_key())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise CertificateError(f"{certificate_file}: {error}") from None
        if not fits:
            raise CertificateError(
                f"{key_file}: not the key of the first certificate in {certificate_file}"
            )
        try:
            return cls(chain[0], tuple(chain[1:]), key)
        except (
            ValueError,
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
        ) as error:
            raise CertificateError(f"{certificate_file}: malformed ({error})") from None

    def __repr__(self) -> str:
        return f"<Certificate {', '.join(sorted(self.names))} {self.fingerprint[:16]}>"


def read_file(path: str) -> bytes:
    """The octets of a small file. Raises CertificateError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE:
        raise CertificateError(f"{path}: larger than {MAX_FILE} bytes")
    return data


def read_chain(path: str) -> list[x509.Certificate]:
    """The certificates of a PEM file, at least one. Raises CertificateError."""
    data = read_file(path)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise CertificateError(f"{path}: no PEM certificate in it ({error})") from None


def read_crls(path: str) -> list[x509.CertificateRevocationList]:
    """The revocation lists of a PEM file, at least one. Raises CertificateError."""
    begin, end = b"-----BEGIN X509 CRL-----", b"-----END X509 CRL-----"
    data = read_file(path)
    lists = []
    for part in data.split(begin)[1:]:
        try:
            lists.append(x509.load_pem_x509_crl(begin + part.partition(end)[0] + end + b"\n"))
        except ValueError as error:
            raise CertificateError(f"{path}: {error}") from None
    if not lists:
        raise CertificateError(f"{path}: no PEM certificate revocation list in it")
    return lists


def is_issuer(candidate: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Whether ``candidate`` signed ``leaf``."""
    try:
        leaf.verify_directly_issued_by(candidate)
    except (ValueError, TypeError, x509.InvalidVersion):
        return False
    except Exception as error:  # noqa: BLE001 - InvalidSignature, and what keys of odd types raise
        del error
        return False
    return True


def _read_key(path: str) -> PrivateKey:
    data = read_file(path)
    try:
        key = load_pem_private_key(data, None)
    except TypeError:
        raise CertificateError(
            f"{path}: the key is encrypted; store it without a passphrase (openssl pkey)"
        ) from None
    except Exception as error:  # noqa: BLE001 - ValueError, UnsupportedAlgorithm
        raise CertificateError(f"{path}: no PEM private key in it ({error})") from None
    if not isinstance(key, PrivateKey):
        raise CertificateError(f"{path}: a key of a type that TLS does not use")
    return key


def _public(key: object) -> bytes:
    octets: bytes = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return octets


def _names(leaf: x509.Certificate) -> frozenset[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    names = {name.lower().rstrip(".") for name in found.get_values_for_type(x509.DNSName)}
    return frozenset(names | {str(ip) for ip in found.get_values_for_type(x509.IPAddress)})


def _must_staple(leaf: x509.Certificate) -> bool:
    try:
        features = leaf.extensions.get_extension_for_class(x509.TLSFeature).value
    except x509.ExtensionNotFound:
        return False
    return x509.TLSFeatureType.status_request in features

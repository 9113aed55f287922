"""Making certificates, revocation lists and OCSP responses (RFC 5280, RFC 6960)."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

DEFAULT_NAMES: Final = ("localhost", "127.0.0.1", "::1")
DEFAULT_DAYS: Final = 90
CA_DAYS: Final = 3650


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def write(
        self, certificate_file: Path, key_file: Path, chain: Sequence[x509.Certificate] = ()
    ) -> None:
        """Write both, the certificate with ``chain`` after it. Raises OSError."""
        write_private(key_file, key_pem(self.key))
        pem = self.pem + b"".join(issuer.public_bytes(Encoding.PEM) for issuer in chain)
        replace_file(certificate_file, pem, 0o644)

    @classmethod
    def read(cls, certificate_file: Path, key_file: Path) -> Issued:
        """Read what :meth:`write` wrote. Raises OSError, or ValueError that names the file."""
        certificate = read_certificate(certificate_file)
        pem = key_file.read_bytes()
        try:
            key = load_pem_private_key(pem, None)
        except TypeError:
            raise ValueError(f"{key_file}: has a passphrase") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError(f"{key_file}: not a private key in PEM") from None
        if not isinstance(key, Key):
            raise ValueError(f"{key_file}: neither an ECDSA nor an RSA key")  # noqa: TRY004
        if key.public_key() != certificate.public_key():
            raise ValueError(f"{key_file}: not the key of {certificate_file}")
        return cls(certificate, key)


def read_certificate(file: Path) -> x509.Certificate:
    """The first certificate of a PEM file. Raises OSError, or ValueError that names the file."""
    pem = file.read_bytes()
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError:
        raise ValueError(f"{file}: not a certificate in PEM") from None


def make_key(*, rsa_key: bool = False) -> Key:
    """A new key: ECDSA P-256, or RSA with 2,048 bits."""
    if rsa_key:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """PKCS #8, without a passphrase."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(path: Path, data: bytes) -> None:
    """Replace a file that nobody else may ever read. Raises OSError."""
    replace_file(path, data, 0o600)


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a file by one that has ``mode`` from its first octet on. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
        new.replace(path)
    except BaseException:
        # Half a key must not stay behind under a name that nobody looks for.
        new.unlink(missing_ok=True)
        raise


def make_ca(name: str = "gateway development CA", days: int = CA_DAYS) -> Issued:
    """An authority that signs itself."""
    key = make_key()
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key, _today(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def make_leaf(
    ca: Issued,
    names: Sequence[str] = DEFAULT_NAMES,
    *,
    rsa_key: bool = False,
    client: bool = False,
    ocsp_url: str | None = None,
    must_staple: bool = False,
    days: float = DEFAULT_DAYS,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    serial_number: int | None = None,
) -> Issued:
    """A certificate of ``ca`` for host names (``*.example.org`` too), IP addresses or URIs.

    ``client`` makes it one of a client. ``must_staple`` is RFC 7633. It is good for ``days`` from
    ``not_before`` (default: an hour ago), or until ``not_after``. Raises ValueError without a name
    or for one that can't be in a certificate.
    """
    if not names:
        raise ValueError("a certificate needs a name")
    key = make_key(rsa_key=rsa_key)
    alternatives = [general_name(name) for name in names]
    not_before = not_before or _today()
    if not_after is not None:
        days = (not_after - not_before) / timedelta(days=1)
    builder = _signed_by(ca, _subject(names[0]), key, days, not_before, serial_number)
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    builder = (
        builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_usage(digital_signature=True, key_encipherment=rsa_key), critical=True)
    )
    if ocsp_url is not None:
        access = x509.AccessDescription(
            AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(ocsp_url)
        )
        builder = builder.add_extension(x509.AuthorityInformationAccess([access]), critical=False)
    if must_staple:
        feature = x509.TLSFeature([x509.TLSFeatureType.status_request])
        builder = builder.add_extension(feature, critical=False)
    return Issued(builder.sign(ca.key, hashes.SHA256()), key)


def make_ocsp_signer(ca: Issued, *, authorized: bool = True, days: float = DEFAULT_DAYS) -> Issued:
    """One who signs OCSP responses for ``ca`` (RFC 6960 section 4.2.2.2). Without ``authorized``
    its certificate does not say so, and nobody must believe it."""
    key = make_key()
    usage = ExtendedKeyUsageOID.OCSP_SIGNING if authorized else ExtendedKeyUsageOID.SERVER_AUTH
    builder = (
        _signed_by(ca, _subject("gateway development OCSP signer"), key, days, None)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.OCSPNoCheck(), critical=False)
    )
    return Issued(builder.sign(ca.key, hashes.SHA256()), key)


def make_crl(ca: Issued, revoked: Iterable[x509.Certificate | int]) -> bytes:
    """A revocation list of ``ca`` in PEM, good for a year. An int is a serial number."""
    today = _today()
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(today)
        .next_update(today + timedelta(days=365))
    )
    for item in revoked:
        serial = item if isinstance(item, int) else item.serial_number
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(today).build()
        )
    return builder.sign(ca.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def make_ocsp_response(
    leaf: x509.Certificate,
    issuer: x509.Certificate,
    signer: Issued,
    *,
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD,
    this_update: datetime | None = None,
    validity: timedelta | None = timedelta(hours=1),
    nonce: bytes = b"",
) -> bytes:
    """An OCSP response about ``leaf`` in DER. A ``signer`` other than the issuer is put into it.
    ``validity`` is from ``this_update`` to nextUpdate; None leaves nextUpdate out."""
    this_update = this_update or datetime.now(UTC).replace(microsecond=0)
    revoked = status is ocsp.OCSPCertStatus.REVOKED
    builder = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=leaf,
            issuer=issuer,
            algorithm=hashes.SHA1(),
            cert_status=status,
            this_update=this_update,
            next_update=None if validity is None else this_update + validity,
            revocation_time=this_update if revoked else None,
            revocation_reason=x509.ReasonFlags.key_compromise if revoked else None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, signer.certificate)
    )
    if signer.certificate != issuer:
        builder = builder.certificates([signer.certificate])
    if nonce:
        builder = builder.add_extension(x509.OCSPNonce(nonce), critical=False)
    return builder.sign(signer.key, hashes.SHA256()).public_bytes(Encoding.DER)


def _signed_by(
    ca: Issued,
    subject: x509.Name,
    key: Key,
    days: float,
    not_before: datetime | None,
    serial_number: int | None = None,
) -> x509.CertificateBuilder:
    authority = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return (
        _builder(subject, ca.certificate.subject, key, not_before or _today(), days, serial_number)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority.value),
            critical=False,
        )
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: Key,
    not_before: datetime,
    days: float,
    serial_number: int | None = None,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number() if serial_number is None else serial_number)
        .not_valid_before(not_before)
        .not_valid_after(not_before + timedelta(days=days))
    )


def _today() -> datetime:
    """An hour ago, for those whose clock is behind."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def general_name(text: str) -> x509.GeneralName:
    """What a subjectAltName says for a URI, an IP address or a host name (RFC 5280 section
    4.2.1.6). Raises ValueError for what is none of them."""
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        # Host names beyond ASCII are written as A-labels (RFC 5280 section 7.2).
        raise ValueError(f'"{text}" is neither an IP address nor a host name in ASCII (xn--...)')
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )

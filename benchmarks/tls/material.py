"""A certificate with its staple, as files in the forms that the proxies want."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.certs.make import Issued, key_pem, make_ca, make_leaf, make_ocsp_response
from gateway.certs.responder import Responder

HOST = "localhost"
GROUP = "X25519"


@dataclass(frozen=True)
class Material:
    """Paths. ``combined`` has chain and key in one file, with its staple and issuer beside it, as
    HAProxy wants them. ``tls12`` asks the proxies to take TLS 1.2, too."""

    ca: Issued
    leaf: x509.Certificate
    ca_file: Path
    certificate: Path
    private_key: Path
    staple: Path
    combined: Path
    tls12: bool = False

    def responder(self) -> Responder:
        """One that knows the certificate."""
        return Responder(self.ca, self.ca, [self.leaf])


def make_material(directory: Path) -> Material:
    """An authority, an ECDSA P-256 leaf for ``localhost``, and an OCSP response for it."""
    ca = make_ca()
    issued = make_leaf(ca, [HOST, "127.0.0.1"])
    material = Material(
        ca,
        issued.certificate,
        directory / "ca.pem",
        directory / "edge.pem",
        directory / "edge.key",
        directory / "edge.ocsp",
        directory / "combined.pem",
    )
    ca.write(material.ca_file, directory / "ca.key")
    issued.write(material.certificate, material.private_key, [ca.certificate])
    # Workers of a proxy may run as somebody else; these keys protect nothing.
    material.private_key.chmod(0o644)
    response = make_ocsp_response(
        issued.certificate, ca.certificate, ca, validity=timedelta(days=1)
    )
    material.staple.write_bytes(response)
    chain = issued.pem + ca.certificate.public_bytes(Encoding.PEM)
    material.combined.write_bytes(chain + key_pem(issued.key))
    material.combined.with_name("combined.pem.ocsp").write_bytes(response)
    material.combined.with_name("combined.pem.issuer").write_bytes(ca.pem)
    return material

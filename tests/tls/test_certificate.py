"""Certificates as they stand in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from gateway.certs.make import make_crl, make_leaf
from gateway.tls.certificate import Certificate, CertificateError, read_crls

from .pair import CA, LEAF


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    pair = tmp_path / "edge.pem", tmp_path / "edge.key"
    LEAF.write(*pair, [CA.certificate])
    return pair


def read(files: tuple[Path, Path]) -> Certificate:
    return Certificate.read(str(files[0]), str(files[1]))


def test_a_pair(files: tuple[Path, Path]):
    found = read(files)
    assert found.leaf == LEAF.certificate
    assert found.chain == (CA.certificate,)
    assert found.issuer == CA.certificate
    assert found.names == {"localhost", "*.example.org", "127.0.0.1"}
    assert found.kind == "ecdsa"
    assert not found.must_staple


def test_without_its_issuer(files: tuple[Path, Path]):
    files[0].write_bytes(LEAF.pem)
    assert read(files).issuer is None


def test_what_is_wrong_names_the_file(files: tuple[Path, Path]):
    certificate, key = files
    other = make_leaf(CA, ["x.test"])
    encrypted = LEAF.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    good = key.read_bytes()
    other.write(certificate.with_name("x.pem"), key)
    with pytest.raises(CertificateError, match=f"{key}: not the key of the first"):
        read(files)
    key.write_bytes(encrypted)
    with pytest.raises(CertificateError, match=f"{key}: the key is encrypted"):
        read(files)
    key.write_bytes(b"nothing")
    with pytest.raises(CertificateError, match=f"{key}: no PEM private key"):
        read(files)
    key.write_bytes(good)
    certificate.write_bytes(b"nothing")
    with pytest.raises(CertificateError, match=f"{certificate}: no PEM certificate"):
        read(files)
    certificate.unlink()
    with pytest.raises(CertificateError, match=f"{certificate}: No such file"):
        read(files)


def test_revocation_lists(tmp_path: Path):
    file = tmp_path / "crl.pem"
    file.write_bytes(make_crl(CA, [LEAF.certificate]) * 2)
    assert len(read_crls(str(file))) == 2
    file.write_bytes(b"nothing")
    with pytest.raises(CertificateError, match="no PEM certificate revocation list"):
        read_crls(str(file))

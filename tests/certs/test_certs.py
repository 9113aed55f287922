"""``gateway certs``, with ``openssl`` as the judge of what it makes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp as x509_ocsp

from gateway.certs import certs
from gateway.certs.make import (
    Issued,
    make_ca,
    make_crl,
    make_leaf,
    make_ocsp_signer,
    read_certificate,
    write_private,
)
from gateway.certs.responder import Responder
from gateway.tls import ocsp

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "certs"


def run(folder: Path, *options: str, code: int = 0) -> str:
    result = CliRunner().invoke(certs, ["--directory", str(folder), *options])
    assert result.exit_code == code, result.output
    return result.output


def openssl(*arguments: str) -> str:
    assert OPENSSL is not None
    done = subprocess.run([OPENSSL, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_all_that_is_needed(folder: Path):
    said = run(folder)
    for name in ("edge", "client", "ocsp"):
        file = folder / f"{name}.pem"
        assert openssl("verify", "-CAfile", f"{folder}/ca.pem", str(file)) == f"{file}: OK\n"
        assert f"{file}, {folder}/{name}.key: made" in said
    text = openssl("x509", "-noout", "-text", "-in", f"{folder}/edge.pem")
    assert "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1" in text
    assert "OCSP - URI:http://127.0.0.1:8889/" in text
    assert "NIST CURVE: P-256" in text
    assert f'certificate = "{folder}/edge.pem"' in said
    assert (folder / ".gitignore").read_text() == "*\n"


def test_other_kinds(folder: Path):
    run(
        folder,
        "--rsa",
        "--name",
        "*.test",
        "--must-staple",
        "--days",
        "3",
        "--ocsp-url",
        "http://o/",
    )
    text = openssl("x509", "-noout", "-text", "-in", f"{folder}/edge.pem")
    assert "DNS:*.test" in text
    assert "Public-Key: (2048 bit)" in text
    assert "status_request" in text
    assert "http://o/" in text


def test_kept_and_made_anew(folder: Path):
    run(folder)
    before = {file.name: file.read_bytes() for file in folder.glob("*.pem")}
    assert "edge.pem: kept" in run(folder)
    assert before == {file.name: file.read_bytes() for file in folder.glob("*.pem")}
    run(folder, "--force")
    assert (folder / "ca.pem").read_bytes() == before["ca.pem"]
    assert (folder / "edge.pem").read_bytes() != before["edge.pem"]


def test_keys_are_nobody_elses(folder: Path):
    old = os.umask(0)
    try:
        run(folder)
    finally:
        os.umask(old)
    keys = list(folder.glob("*.key"))
    assert len(keys) == 4
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    # A file that others could read is replaced, not written to.
    keys[0].chmod(0o644)
    with keys[0].open("rb") as opened:
        write_private(keys[0], b"secret")
        assert b"secret" not in opened.read()
    assert stat.S_IMODE(keys[0].stat().st_mode) == 0o600


@pytest.mark.parametrize("lost", ["ca.key", "ca.pem", "edge.pem", "edge.key", "ocsp.key"])
def test_half_of_a_pair_is_not_replaced_unasked(folder: Path, lost: str):
    run(folder)
    (folder / lost).unlink()
    before = {file: file.read_bytes() for file in folder.iterdir()}
    said = run(folder, code=1)
    assert f"{folder / lost} is not there" in said
    assert before == {file: file.read_bytes() for file in folder.iterdir()}
    run(folder, "--force", code=1 if lost.startswith("ca") else 0)
    if lost.startswith("ca"):
        assert before == {file: file.read_bytes() for file in folder.iterdir()}


def test_kept_though_of_another_authority(folder: Path):
    run(folder)
    make_ca().write(folder / "ca.pem", folder / "ca.key")
    said = run(folder)
    assert said.count(f"but not of {folder}/ca.pem (--force makes it anew)") == 3
    run(folder, "--force")
    assert "but not of" not in run(folder)


def test_files_that_are_not_what_they_should_be(folder: Path):
    run(folder)
    ca = folder / "ca.key"
    right = ca.read_bytes()
    ca.write_bytes((folder / "ocsp.key").read_bytes())
    assert f"{ca}: not the key of {folder}/ca.pem" in run(folder, "--force", code=1)
    ca.write_bytes(b"nonsense")
    assert f"{ca}: not a private key in PEM" in run(folder, code=1)
    plain = folder / "plain.key"
    plain.write_bytes(right)
    openssl("pkey", "-in", str(plain), "-aes256", "-passout", "pass:secret", "-out", str(ca))
    assert f"{ca}: has a passphrase" in run(folder, code=1)
    (folder / "ca.pem").write_bytes(b"nonsense")
    assert f"{folder}/ca.pem: not a certificate in PEM" in run(folder, code=1)


def test_the_gitignore_of_others_is_kept(folder: Path):
    folder.mkdir()
    (folder / ".gitignore").write_text("build/\n")
    assert "the keys may get committed" in run(folder)
    assert (folder / ".gitignore").read_text() == "build/\n"


def test_nothing_stays_of_a_key_that_could_not_be_written(tmp_path: Path):
    (tmp_path / "a.key").mkdir()  # a file can't take its place
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "a.key", b"secret")
    assert [file.name for file in tmp_path.iterdir()] == ["a.key"]


def test_dates_and_revocation(tmp_path: Path):
    ca = make_ca()
    begin, end = datetime(2031, 2, 3, tzinfo=UTC), datetime(2031, 2, 4, 5, 6, 7, tzinfo=UTC)
    leaf = make_leaf(ca, not_before=begin, not_after=end).certificate
    assert (leaf.not_valid_before_utc, leaf.not_valid_after_utc) == (begin, end)
    crl = x509.load_pem_x509_crl(make_crl(ca, [leaf, 4711]))
    assert {item.serial_number for item in crl} == {leaf.serial_number, 4711}
    assert crl.is_signature_valid(ca.certificate.public_key())  # type: ignore[arg-type]


def test_an_address_that_is_taken(folder: Path):
    run(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ["responder", "--directory", str(folder), "--address", address]
        assert f"--address {address}: Address already in use" in run(folder, *command, code=1)


def test_wrong_usage(folder: Path):
    assert "--days" in run(folder, "--days", "0", code=2)
    for name in ("", "bücher.example", "a b"):
        said = run(folder, "--name", name, code=2)
        assert "--name" in said
        assert f'"{name}" is neither' in said
    assert "--ocsp-url" in run(folder, "--ocsp-url", "nowhere", code=2)
    assert not folder.exists()
    assert "makes them" in run(folder, "responder", "--directory", str(folder), code=1)
    run(folder)
    for address in ("nowhere", "127.0.0.1:99999", ":1", "127.0.0.1:²"):
        said = run(folder, "responder", "--directory", str(folder), "--address", address, code=2)
        assert "is not host:port" in said
    assert "lie" in run(folder, "responder", "--fault", "lie", code=2)


class TestResponder:
    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Issued, Issued]:
        ca = make_ca()
        ca.write(tmp_path / "ca.pem", tmp_path / "ca.key")
        leaf = make_leaf(ca, ["localhost"])
        leaf.write(tmp_path / "leaf.pem", tmp_path / "leaf.key")
        return ca, leaf

    @pytest.fixture
    def responder(self, files: tuple[Issued, Issued]) -> Iterator[Responder]:
        ca, leaf = files
        with Responder(ca, make_ocsp_signer(ca), [leaf.certificate]) as responder:
            yield responder

    def ask(self, responder: Responder, folder: Path) -> str:
        return openssl(
            "ocsp",
            "-issuer",
            f"{folder}/ca.pem",
            "-cert",
            f"{folder}/leaf.pem",
            "-CAfile",
            f"{folder}/ca.pem",
            "-url",
            responder.url,
        )

    def test_openssl_believes_it(self, responder: Responder, tmp_path: Path):
        said = self.ask(responder, tmp_path)
        assert "Response verify OK" in said
        assert f"{tmp_path}/leaf.pem: good" in said
        responder.behaviour.fault = "revoked"
        assert f"{tmp_path}/leaf.pem: revoked" in self.ask(responder, tmp_path)

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            ("wrong-issuer", "Response Verify Failure"),
            ("unauthorized-signer", "Response Verify Failure"),
            ("wrong-serial", "ERROR: No Status found"),
            ("expired", "status expired"),
            ("not-yet-valid", "status not yet valid"),
            ("try-later", "trylater"),
            ("http-500", "Error querying OCSP responder"),
            ("garbage", "Error querying OCSP responder"),
            ("huge", "Error querying OCSP responder"),
            ("wrong-nonce", "Nonce Verify error"),
            ("unknown", "leaf.pem: unknown"),
        ],
    )
    def test_openssl_sees_each_lie(
        self, fault: str, said: str, responder: Responder, tmp_path: Path
    ):
        responder.behaviour.fault = fault  # type: ignore[assignment]
        assert said in self.ask(responder, tmp_path)

    def test_get(self, responder: Responder, files: tuple[Issued, Issued]):
        ca, leaf = files
        request = ocsp.build_request(leaf.certificate, ca.certificate, b"")
        connection = HTTPConnection("127.0.0.1", responder.port)
        connection.request("GET", "/" + quote(b64encode(request).decode(), safe=""))
        response = connection.getresponse()
        assert response.headers["content-type"] == ocsp.RESPONSE_TYPE
        found = x509_ocsp.load_der_ocsp_response(response.read())
        assert found.certificate_status is x509_ocsp.OCSPCertStatus.GOOD
        connection.close()

    def test_get_by_those_who_do_not_quote(self, files: tuple[Issued, Issued]):
        """ "/" is one of the digits of base64, and may stand beside another."""
        ca, leaf = files
        nonce = b"\xff" * 16
        request = b64encode(ocsp.build_request(leaf.certificate, ca.certificate, nonce)).decode()
        assert "//" in request
        with Responder(ca, ca, [leaf.certificate]) as responder:
            connection = HTTPConnection("127.0.0.1", responder.port)
            connection.request("GET", "/" + request)
            found = x509_ocsp.load_der_ocsp_response(connection.getresponse().read())
            connection.close()
        assert found.certificate_status is x509_ocsp.OCSPCertStatus.GOOD

    def test_a_certificate_that_it_does_not_know(
        self, responder: Responder, files: tuple[Issued, Issued], tmp_path: Path
    ):
        make_leaf(files[0]).write(tmp_path / "leaf.pem", tmp_path / "leaf.key")
        said = self.ask(responder, tmp_path)
        assert "Response verify OK" in said
        assert "leaf.pem: unknown" in said

    def test_a_certificate_of_others(self, responder: Responder, tmp_path: Path):
        other = make_ca()
        other.write(tmp_path / "ca.pem", tmp_path / "ca.key")
        make_leaf(other).write(tmp_path / "leaf.pem", tmp_path / "leaf.key")
        assert "unauthorized" in self.ask(responder, tmp_path)

    def test_a_serial_number_of_no_certificate(
        self, responder: Responder, files: tuple[Issued, Issued]
    ):
        own = x509_ocsp.load_der_ocsp_request(
            ocsp.build_request(files[1].certificate, files[0].certificate, b"")
        )
        for serial in (0, 1 << 160):
            request = x509_ocsp.OCSPRequestBuilder().add_certificate_by_hash(
                own.issuer_name_hash, own.issuer_key_hash, serial, own.hash_algorithm
            )
            _, body = responder.answer(request.build().public_bytes(Encoding.DER))
            found = x509_ocsp.load_der_ocsp_response(body)
            assert found.response_status is x509_ocsp.OCSPResponseStatus.UNAUTHORIZED

    def test_ipv6(self, files: tuple[Issued, Issued], tmp_path: Path):
        if not socket.has_ipv6:
            pytest.skip("no IPv6")
        ca, leaf = files
        try:
            responder = Responder(ca, ca, [leaf.certificate], host="::1")
        except OSError:
            pytest.skip("no IPv6")
        with responder:
            assert responder.url == f"http://[::1]:{responder.port}/"
            connection = HTTPConnection("::1", responder.port)
            request = ocsp.build_request(leaf.certificate, ca.certificate, b"")
            connection.request("POST", "/", request, {"content-type": ocsp.REQUEST_TYPE})
            assert connection.getresponse().status == 200
            connection.close()

    def test_what_is_no_request(self, responder: Responder):
        for headers, status in (
            ({"content-type": "text/plain", "content-length": "1"}, 415),
            ({"content-type": ocsp.REQUEST_TYPE, "content-length": "70000"}, 413),
        ):
            connection = HTTPConnection("127.0.0.1", responder.port)
            connection.putrequest("POST", "/")
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            assert connection.getresponse().status == status
            connection.close()
        connection = HTTPConnection("127.0.0.1", responder.port)
        connection.request("POST", "/", b"nonsense", {"content-type": ocsp.REQUEST_TYPE})
        body = connection.getresponse().read()
        connection.close()
        found = x509_ocsp.load_der_ocsp_response(body)
        assert found.response_status is x509_ocsp.OCSPResponseStatus.MALFORMED_REQUEST


def test_the_command_runs_until_it_is_told_to_stop(folder: Path):
    run(folder)
    # A revocation list beside the certificates is none.
    ca = Issued.read(folder / "ca.pem", folder / "ca.key")
    (folder / "crl.pem").write_bytes(make_crl(ca, []))
    from tests.tls.test_resumption import path

    command = [sys.executable, "-m", "gateway", "certs", "responder", "--directory", str(folder)]
    child = subprocess.Popen(
        [*command, "--address", "127.0.0.1:0", "--validity", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path()},
    )
    with child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("OCSP responder on http://127.0.0.1:")
        port = int(line.split(":")[2].split("/")[0])
        assert line.endswith("for 4 certificates\n")
        leaf = read_certificate(folder / "edge.pem")
        connection = HTTPConnection("127.0.0.1", port)
        request = ocsp.build_request(leaf, ca.certificate, b"n" * 32)
        connection.request("POST", "/", request, {"content-type": ocsp.REQUEST_TYPE})
        found = x509_ocsp.load_der_ocsp_response(connection.getresponse().read())
        connection.close()
        assert found.next_update_utc is None
        child.send_signal(signal.SIGTERM)
        assert "1 requests answered" in child.stdout.read()
        assert child.wait(30) == 0

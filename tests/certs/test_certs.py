"""``gateway certs``, with ``openssl`` as the judge of what it makes."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.x509 import ocsp as x509_ocsp

from gateway.certs import certs
from gateway.certs.make import Issued, make_ca, make_leaf, make_ocsp_signer, write_private
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


def test_wrong_usage(folder: Path):
    assert "--days" in run(folder, "--days", "0", code=2)
    assert "makes them" in run(folder, "responder", "--directory", str(folder), code=1)
    run(folder)
    said = run(folder, "responder", "--directory", str(folder), "--address", "nowhere", code=2)
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
        leaf, ca = (
            x509.load_pem_x509_certificates((folder / f"{name}.pem").read_bytes())[0]
            for name in ("edge", "ca")
        )
        connection = HTTPConnection("127.0.0.1", port)
        request = ocsp.build_request(leaf, ca, b"n" * 32)
        connection.request("POST", "/", request, {"content-type": ocsp.REQUEST_TYPE})
        found = x509_ocsp.load_der_ocsp_response(connection.getresponse().read())
        connection.close()
        assert found.next_update_utc is None
        child.send_signal(signal.SIGTERM)
        assert "1 requests answered" in child.stdout.read()
        assert child.wait(30) == 0

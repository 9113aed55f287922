"""TLS as clients see it: openssl, curl, nghttp, grpcio, sslyze, and a client that replays."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from OpenSSL import SSL

from gateway.certs.make import make_ocsp_response, make_ocsp_signer
from gateway.certs.responder import Responder
from gateway.demo.backend import Tokens
from gateway.demo.tokens_pb2 import Prompt
from gateway.demo.tokens_pb2_grpc import TokensStub, add_TokensServicer_to_server
from gateway.tls.client_hello import ClientHelloReader

from .conftest import FindTool, StartGateway, StartTls, Stopping
from .processes import WAIT_S, GatewayProcess
from .raw import RawBackend, echo
from .tls import Authority, Tls, drain

GET = b"GET /r HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"


@pytest.fixture
def s_client(tool: FindTool, authority: Authority) -> Callable[..., str]:
    """``openssl s_client``; what it prints, when the server has closed."""
    program = tool("openssl")

    def run(process: GatewayProcess, *options: str, send: bytes = GET) -> str:
        done = subprocess.run(
            [
                program,
                "s_client",
                "-connect",
                f"127.0.0.1:{process.port}",
                "-servername",
                "localhost",
                "-CAfile",
                authority.file,
                "-ign_eof",
                *options,
            ],
            input=send,
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        return (done.stdout + done.stderr).decode("latin-1")

    return run


class TestOpenssl:
    def test_versions_and_alpn(
        self, tls: StartTls, stopping: Stopping, s_client: Callable[..., str]
    ) -> None:
        process = tls([stopping(RawBackend(echo))])
        said = s_client(process, "-alpn", "http/1.1")
        assert "New, TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256" in said
        assert "ALPN protocol: http/1.1" in said
        assert "Verify return code: 0 (ok)" in said
        assert "HTTP/1.1 200" in said
        assert "\nx-forwarded-proto: https" in said
        assert "alert protocol version" in s_client(process, "-tls1_2")
        assert "alert no application protocol" in s_client(process, "-alpn", "spdy/3")

    def test_tls12_where_it_is_asked_for(
        self, tls: StartTls, stopping: Stopping, s_client: Callable[..., str]
    ) -> None:
        process = tls([stopping(RawBackend(echo))], {"min_version": "1.2"})
        assert "New, TLSv1.2, Cipher is ECDHE-ECDSA-AES128-GCM" in s_client(process, "-tls1_2")
        weak = s_client(process, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA")
        assert "handshake failure" in weak
        assert "HTTP/1.1 200" in s_client(process)

    def test_certificates_by_name(
        self, tls: StartTls, stopping: Stopping, s_client: Callable[..., str], authority: Authority
    ) -> None:
        authority.leaf("rsa", rsa_key=True)
        authority.leaf("other", ("*.example.org",))
        tables = [authority.table(name) for name in ("edge", "rsa", "other")]
        process = tls([stopping(RawBackend(echo))], {"certificates": tables, "strict_sni": True})
        said = s_client(process, "-sigalgs", "rsa_pss_rsae_sha256")
        assert "Peer signature type: RSA-PSS" in said
        assert "Peer signature type: ECDSA" in s_client(process)
        said = s_client(process, "-servername", "a.example.org")
        assert "CN = *.example.org" in said
        said = s_client(process, "-servername", "a.b.example.org")
        assert "unrecognized name" in said

    def test_staples(
        self, tls: StartTls, stopping: Stopping, s_client: Callable[..., str], authority: Authority
    ) -> None:
        leaf = authority.leaf("fetched", ("fetched.test",))
        signer = make_ocsp_signer(authority.ca)
        edge = authority.leaf()
        response = make_ocsp_response(edge.certificate, authority.ca.certificate, signer)
        (authority.directory / "edge.ocsp").write_bytes(response)
        with Responder(authority.ca, signer, [leaf.certificate]) as responder:
            tables = [
                authority.table(ocsp="file", ocsp_file=str(authority.directory / "edge.ocsp")),
                authority.table("fetched", ocsp="fetch", ocsp_url=responder.url),
            ]
            process = tls([stopping(RawBackend(echo))], {"certificates": tables}, workers=2)
            for name in ("localhost", "fetched.test"):
                said = s_client(process, "-status", "-servername", name)
                assert "Cert Status: good" in said
                assert "Verification: OK" in said
            # Two workers, one fetch.
            assert responder.requests == 1
        assert process.counters()["ocsp_staples"] == 2

    def test_resumed_by_any_worker_and_over_a_rotation(
        self, tls: StartTls, stopping: Stopping, authority: Authority
    ) -> None:
        life = {"ticket_rotation": "2s", "ticket_lifetime": "2s"}
        process = tls([stopping(RawBackend(echo))], life, workers=2)
        client = Tls(authority)
        session, before = None, b""
        while True:
            with client.ask(process.port, GET) as answer:
                fresh = answer.session
            key = session_key(client, fresh)
            if before and key != before:
                break
            session, before = fresh, key
        # The last ticket of the key before; the kernel spreads connections over both workers.
        for _ in range(12):
            with client.ask(process.port, GET, session) as answer:
                assert answer.resumed
        assert process.counters()["tls_resumptions"] == 12

    def test_early_data(
        self,
        tls: StartTls,
        stopping: Stopping,
        s_client: Callable[..., str],
        tmp_path: Path,
    ) -> None:
        backend = stopping(RawBackend(echo))
        process = tls([backend], {"early_data": "safe"})
        session, request = str(tmp_path / "session"), tmp_path / "request"
        alpn = ("-alpn", "http/1.1")
        s_client(process, *alpn, "-sess_out", session)
        request.write_bytes(GET)
        said = s_client(process, *alpn, "-sess_in", session, "-early_data", str(request), send=b"")
        assert "Early data was accepted" in said
        assert "Reused, TLSv1.3" in said
        assert "\nearly-data: 1" in said
        request.write_bytes(POST)
        said = s_client(process, *alpn, "-sess_in", session, "-early_data", str(request), send=b"")
        assert "Early data was accepted" in said
        assert "POST /p HTTP/1.1" in said
        assert "early-data" not in said.partition("POST /p")[2]
        counters = process.counters()
        assert counters["early_data_forwarded"] == 1
        assert counters["early_data_held"] == 1


def session_key(client: Tls, session: Any) -> bytes:
    """The name of the key that a ticket was made with: its first 16 octets, in a ClientHello."""
    connection = client.connection(session)
    with pytest.raises(SSL.WantReadError):
        connection.do_handshake()
    found = ClientHelloReader().feed(drain(connection))
    assert found is not None
    return found[0].ticket[:16]


class TestOtherClients:
    @pytest.mark.parametrize("version", ["--http2", "--http1.1"])
    def test_curl_checks_the_staple(
        self,
        version: str,
        tls: StartTls,
        stopping: Stopping,
        tool: FindTool,
        authority: Authority,
    ) -> None:
        edge = authority.leaf()
        file = authority.directory / "edge.ocsp"
        file.write_bytes(
            make_ocsp_response(edge.certificate, authority.ca.certificate, authority.ca)
        )
        table = authority.table(ocsp="file", ocsp_file=str(file))
        process = tls([stopping(RawBackend(echo))], {"certificates": [table]})
        done = subprocess.run(
            [
                tool("curl"),
                "-sS",
                "--cert-status",
                "--cacert",
                authority.file,
                version,
                "-w",
                "%{http_version}",
                f"https://localhost:{process.port}/x",
            ],
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"GET /x HTTP/1.1")
        assert done.stdout.endswith(b"2" if version == "--http2" else b"1.1")

    def test_nghttp(self, tls: StartTls, stopping: Stopping, tool: FindTool) -> None:
        process = tls([stopping(RawBackend(echo))])
        done = subprocess.run(
            [tool("nghttp"), "-nv", f"https://127.0.0.1:{process.port}/"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert "The negotiated protocol: h2" in done.stdout
        assert ":status: 200" in done.stdout

    def test_grpcio_on_both_sides(
        self, gateway: StartGateway, authority: Authority, stack: Any
    ) -> None:
        """grpcio's client in front, grpcio's server behind, both with TLS."""
        backend = TlsBackend(authority)
        stack.callback(backend.stop)
        process = gateway(
            [backend],
            workers=2,
            listener={"tls": "edge"},
            cluster={"tls": {"ca": authority.file}},
            config={"tls": {"edge": {"certificates": [authority.table()]}}},
        )
        credentials = grpc.ssl_channel_credentials(Path(authority.file).read_bytes())
        with grpc.secure_channel(f"localhost:{process.port}", credentials) as channel:
            stub: Any = TokensStub(channel)
            assert stub.Complete(Prompt(tokens=3), timeout=WAIT_S).tokens == 3
            assert len(list(stub.Generate(Prompt(tokens=5), timeout=WAIT_S))) == 5
            stream = stub.Generate(Prompt(tokens=100_000), timeout=WAIT_S)
            next(stream)
            stream.cancel()
        assert process.counters()["upstream_tls_handshakes"] >= 1

    def test_sslyze(
        self, tls: StartTls, stopping: Stopping, authority: Authority, tmp_path: Path
    ) -> None:
        scanner = Path(__file__).parents[2] / ".venv-sslyze" / "bin" / "sslyze"
        if not scanner.exists():
            pytest.skip("no sslyze: make sslyze")
        edge = authority.leaf()
        file = authority.directory / "edge.ocsp"
        file.write_bytes(
            make_ocsp_response(edge.certificate, authority.ca.certificate, authority.ca)
        )
        table = authority.table(ocsp="file", ocsp_file=str(file))
        process = tls([stopping(RawBackend(echo))], {"certificates": [table], "min_version": "1.2"})
        out = tmp_path / "sslyze.json"
        subprocess.run(
            [
                str(scanner),
                f"--json_out={out}",
                f"--certinfo_ca_file={authority.file}",
                "--certinfo",
                "--resum",
                "--sslv2",
                "--sslv3",
                "--tlsv1",
                "--tlsv1_1",
                "--tlsv1_2",
                "--tlsv1_3",
                "--early_data",
                "--heartbleed",
                "--compression",
                "--reneg",
                "--openssl_ccs",
                f"localhost:{process.port}",
            ],
            capture_output=True,
            timeout=4 * WAIT_S,
            check=False,
        )
        (result,) = json.loads(out.read_text())["server_scan_results"]
        scans = {name: scan["result"] for name, scan in result["scan_result"].items()}
        for old in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
            assert scans[f"{old}_cipher_suites"]["accepted_cipher_suites"] == []
        suites = scans["tls_1_2_cipher_suites"]["accepted_cipher_suites"]
        names = {suite["cipher_suite"]["name"] for suite in suites}
        assert names
        assert all(("ECDHE" in name and "GCM" in name) or "CHACHA20" in name for name in names)
        assert len(scans["tls_1_3_cipher_suites"]["accepted_cipher_suites"]) == 3
        (deployment,) = scans["certificate_info"]["certificate_deployments"]
        assert deployment["ocsp_response"]["certificate_status"] == "GOOD"
        assert deployment["ocsp_response_is_trusted"]
        assert scans["session_resumption"]["tls_ticket_resumption_result"] == "FULLY_SUPPORTED"
        assert not scans["heartbleed"]["is_vulnerable_to_heartbleed"]
        assert not scans["tls_compression"]["supports_compression"]
        assert not scans["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]


class TlsBackend:
    """A grpcio server with a certificate of ours."""

    def __init__(self, authority: Authority) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_TokensServicer_to_server(Tokens("secure", 0.0, None), self._server)
        key = (authority.directory / "edge.key").read_bytes()
        chain = (authority.directory / "edge.pem").read_bytes()
        port = self._server.add_secure_port(
            "127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)])
        )
        self._server.start()
        self.address = f"grpcs://127.0.0.1:{port}"

    def stop(self) -> None:
        self._server.stop(None).wait()

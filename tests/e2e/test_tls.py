"""TLS with clients that are somebody else's: openssl, curl, sslyze, grpcio, nghttp, websockets."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from OpenSSL import SSL
from websockets.sync.client import connect as websocket
from websockets.sync.server import ServerConnection, serve

from gateway.certs.make import make_crl
from gateway.certs.responder import Responder
from gateway.demo.plain import Http2Server, Message, response
from gateway.demo.tokens_pb2 import Completion, Prompt
from gateway.demo.tokens_pb2_grpc import TokensStub
from gateway.wire.proxy_protocol import write_v1, write_v2

from .conftest import FindTool, Site, StartBackend, StartGateway, Stopping
from .peers import grpc_message
from .processes import WAIT_S, GatewayProcess
from .raw import RawBackend, RawConnection, echo
from .tls import (
    CLUSTER,
    GET,
    H2,
    HTTP1,
    Alert,
    Authority,
    Leaf,
    TlsClient,
    connect,
    edge,
    key_name,
    run,
    ticket,
    worker_of,
)

ROOT = Path(__file__).resolve().parents[2]
SSLYZE = ROOT / ".venv-sslyze" / "bin" / "sslyze"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
MIB = 1 << 20

Connect = Callable[..., str]


@pytest.fixture
def web(stopping: Stopping) -> RawBackend:
    """Answers with the request head that it got."""
    return stopping(RawBackend(echo))


@pytest.fixture
def s_client(tool: FindTool, authority: Authority) -> Connect:
    """What ``openssl s_client`` prints; it sends one request, and waits for the end."""
    program = tool("openssl")

    def call(process: GatewayProcess, *options: object, given: bytes = LAST, **more: Any) -> str:
        fixed = ("-connect", process.address, "-CAfile", authority.file, "-ign_eof")
        named = () if "-servername" in options else ("-servername", "localhost")
        return run((program, "s_client", *fixed, *named, *options), given=given, **more)

    return call


@pytest.fixture
def curl(tool: FindTool, authority: Authority) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    program = tool("curl")

    def call(
        process: GatewayProcess, path: str, *options: object
    ) -> subprocess.CompletedProcess[bytes]:
        fixed = (program, "-sS", "--max-time", str(WAIT_S), "--cacert", str(authority.file))
        return subprocess.run(
            [*fixed, *map(str, options), f"https://{process.address}{path}"],
            capture_output=True,
            check=False,
            timeout=2 * WAIT_S,
        )

    return call


class TestOpenSsl:
    def test_a_staple_from_a_file(self, site: Site, s_client: Connect) -> None:
        process = site.process
        output = s_client(process, "-status", "-verify_return_error")
        assert "OCSP Response Status: successful" in output
        assert "Cert Status: good" in output
        assert "Verify return code: 0 (ok)" in output
        assert "TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256" in output
        assert "HTTP/1.1 200 OK" in output

    def test_a_staple_from_a_responder(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        s_client: Connect,
        tool: FindTool,
        tmp_path: Path,
    ) -> None:
        """Fetched once for both workers; openssl's own verdict on it is the judge."""
        leaf = authority.leaf()
        with Responder(authority.ca, authority.ca, [leaf.x509]) as responder:
            entry = leaf.entry(ocsp="fetch", ocsp_url=responder.url)
            process = gateway(
                [web],
                workers=2,
                cluster=CLUSTER,
                gateway={"state_directory": str(tmp_path / "state")},
                **edge(entry),
            )
            for _ in range(4):
                assert "Cert Status: good" in s_client(process, "-status")
            with TlsClient(process.port, authority, staple=True) as client:
                (tmp_path / "staple").write_bytes(client.tls.staple)
            assert responder.requests == 1
        counters = process.counters()
        assert counters["ocsp_fetches"] == 1
        assert counters["ocsp_staples"] == 1
        assert counters["ocsp_staples_missing"] == 0
        verdict = run(
            (
                *(tool("openssl"), "ocsp", "-respin", tmp_path / "staple"),
                *("-CAfile", authority.file, "-issuer", authority.file),
                *("-cert", leaf.certificate, "-no_nonce"),
            )
        )
        assert "Response verify OK" in verdict
        assert f"{leaf.certificate}: good" in verdict

    def test_without_stapling_there_is_no_response(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, s_client: Connect
    ) -> None:
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf()))
        assert "OCSP response: no response sent" in s_client(process, "-status")

    def test_sessions_resume_on_every_worker(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        s_client: Connect,
        tmp_path: Path,
    ) -> None:
        process = gateway([web], workers=2, cluster=CLUSTER, **edge(authority.leaf()))
        saved = tmp_path / "session.pem"
        assert "New, TLSv1.3" in s_client(process, "-sess_out", saved)
        for _ in range(5):
            output = s_client(process, "-sess_in", saved)
            assert "Reused, TLSv1.3" in output
            assert "HTTP/1.1 200 OK" in output
        assert process.counters()["tls_resumptions"] == 5
        seen: set[int] = set()
        session = ticket(process.port, authority)
        while len(seen) < 2:  # the kernel chooses the worker
            with TlsClient(process.port, authority, session=session) as client:
                assert client.tls.resumed
                assert client.get()[0] == 200
                seen.add(worker_of(process, client.tls.sock))

    def test_sessions_resume_across_a_rotation(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        table: dict[str, Any] = {"ticket_rotation": "2s", "ticket_lifetime": "2s"}
        process = gateway([web], workers=2, cluster=CLUSTER, **edge(authority.leaf(), **table))
        before = after = ticket(process.port, authority)
        pause = threading.Event()
        for _ in range(500):
            if key_name(before, authority) != key_name(after, authority):
                break
            pause.wait(0.02)
            before, after = after, ticket(process.port, authority)
        assert key_name(before, authority) != key_name(after, authority)
        # One has a key of the period before; both are good for all workers.
        for session in (before, after) * 4:
            with TlsClient(process.port, authority, session=session) as client:
                assert client.tls.resumed
                assert client.get()[0] == 200
        assert "ticket keys" not in process.output

    def test_no_tickets(self, gateway: StartGateway, web: RawBackend, authority: Authority) -> None:
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), session_tickets=0))
        session = ticket(process.port, authority)
        with TlsClient(process.port, authority, session=session) as client:
            assert not client.tls.resumed

    def test_tls12_only_where_it_is_allowed(
        self,
        site: Site,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        s_client: Connect,
    ) -> None:
        process = site.process
        output = s_client(process, "-tls1_2", check=False)
        assert "alert protocol version" in output
        process.wait_for_counter("tls_handshake_failed", 1)
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), min_version="1.2"))
        output = s_client(process, "-tls1_2")
        assert "New, TLSv1.2, Cipher is ECDHE-ECDSA-AES128-GCM-SHA256" in output
        assert "HTTP/1.1 200 OK" in output
        assert "TLSv1.3, Cipher is" in s_client(process)
        # Neither CBC nor a key exchange without forward secrecy.
        for suite in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "AES128-GCM-SHA256"):
            output = s_client(process, "-tls1_2", "-cipher", suite, check=False)
            assert "alert handshake failure" in output
        for version in ("-tls1", "-tls1_1"):
            output = s_client(process, version, "-cipher", "DEFAULT@SECLEVEL=0", check=False)
            assert "alert protocol version" in output

    def test_tls12_sessions_resume(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        s_client: Connect,
        tmp_path: Path,
    ) -> None:
        process = gateway(
            [web], workers=2, cluster=CLUSTER, **edge(authority.leaf(), min_version="1.2")
        )
        saved = tmp_path / "session.pem"
        assert "New, TLSv1.2" in s_client(process, "-tls1_2", "-sess_out", saved)
        for _ in range(6):
            assert "Reused, TLSv1.2" in s_client(process, "-tls1_2", "-sess_in", saved)

    def test_the_certificate_is_chosen_by_name(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, s_client: Connect
    ) -> None:
        first, second = authority.leaf(), authority.leaf("a.test", "*.b.test")
        rsa = authority.leaf("a.test", rsa_key=True)
        process = gateway([web], cluster=CLUSTER, **edge(first, second, rsa))
        for name, subject in (
            ("a.test", "a.test"),
            ("A.TEST", "a.test"),
            ("x.b.test", "a.test"),
            ("x.y.b.test", "localhost"),
            ("unknown.test", "localhost"),
        ):
            assert f"subject=CN = {subject}\n" in s_client(process, "-servername", name)
        output = s_client(process, "-servername", "a.test", "-sigalgs", "rsa_pss_rsae_sha256")
        assert "Server public key is 2048 bit" in output

    def test_strict_sni(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, s_client: Connect
    ) -> None:
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), strict_sni=True))
        assert "HTTP/1.1 200 OK" in s_client(process)
        output = s_client(process, "-servername", "unknown.test", check=False)
        assert "unrecognized name" in output

    def test_a_protocol_that_is_not_ours(
        self, site: Site, authority: Authority, s_client: Connect
    ) -> None:
        process = site.process
        output = s_client(process, "-alpn", "spdy/3", check=False)
        assert "alert no application protocol" in output
        output = s_client(process, "-alpn", "spdy/3,http/1.1")
        assert "ALPN protocol: http/1.1" in output

    def test_groups(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, s_client: Connect
    ) -> None:
        """A client that guesses another group is asked again (HelloRetryRequest)."""
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), groups=["P-256"]))
        output = s_client(process, "-groups", "X25519:P-256")
        assert "ECDH, prime256v1, 256 bits" in output
        assert "HTTP/1.1 200 OK" in output
        output = s_client(process, "-groups", "X25519", check=False)
        assert "alert handshake failure" in output

    def test_key_update(self, site: Site, authority: Authority, tool: FindTool) -> None:
        """s_client takes ``K`` for new keys on both sides, and the stream goes on."""
        process = site.process
        child = subprocess.Popen(
            (
                *(tool("openssl"), "s_client", "-connect", process.address, "-msg"),
                *("-CAfile", str(authority.file), "-servername", "localhost"),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        seen = b""
        try:
            for given, wanted in (
                (GET, b"GET / HTTP/1.1"),
                (b"K\n", b">>> TLS 1.3, Handshake [length 0005], KeyUpdate"),
                (LAST, b"connection: close"),
            ):
                child.stdin.write(given)
                seen = b""
                while wanted not in seen:
                    data = child.stdout.read(65536)
                    assert data, seen
                    seen += data
            # Ours is asked for, and comes before what we send next.
            assert b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate" in seen
        finally:
            child.kill()
            child.communicate()


class TestCurl:
    @pytest.mark.parametrize(("option", "version"), [("--http2", "2"), ("--http1.1", "1.1")])
    def test_status_and_alpn(
        self,
        site: Site,
        curl: Any,
        option: str,
        version: str,
    ) -> None:
        process = site.process
        done = curl(process, "/x", "--cert-status", option, "-w", "%{http_version}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"GET /x HTTP/1.1\r\n")
        assert b"\r\nx-forwarded-proto: https\r\n" in done.stdout
        assert done.stdout.endswith(version.encode())

    def test_a_revoked_staple_is_not_sent(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, curl: Any
    ) -> None:
        leaf = authority.leaf()
        file = authority.staple(leaf, status=ocsp.OCSPCertStatus.REVOKED)
        entry = leaf.entry(ocsp="file", ocsp_file=str(file))
        process = gateway([web], cluster=CLUSTER, **edge(entry))
        assert "IS REVOKED" in process.output
        assert curl(process, "/").returncode == 0
        assert curl(process, "/", "--cert-status").returncode == 91  # no OCSP response
        assert process.counters()["ocsp_revoked"] == 1

    def test_large_bodies_both_ways(
        self,
        gateway: StartGateway,
        stopping: Stopping,
        authority: Authority,
        curl: Any,
        tmp_path: Path,
    ) -> None:
        def answer(request: Message) -> Message:
            return response(200, bytes(request.body))

        process = gateway([stopping(Http2Server(answer))], **edge(authority.leaf()))
        body = os.urandom(MIB)
        (tmp_path / "body").write_bytes(body)
        for option in ("--http2", "--http1.1"):
            given = (option, "-H", "Expect:", "--data-binary", f"@{tmp_path / 'body'}")
            done = curl(process, "/", *given)
            assert done.returncode == 0, done.stderr
            assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(body).digest()

    def test_grpc_web(
        self,
        gateway: StartGateway,
        backend: StartBackend,
        authority: Authority,
        curl: Any,
        tmp_path: Path,
    ) -> None:
        process = gateway([backend("one")], route={"grpc_web": True}, **edge(authority.leaf()))
        (tmp_path / "body").write_bytes(grpc_message(Prompt(tokens=3)))
        done = curl(
            process,
            "/gateway.demo.v1.Tokens/Complete",
            *("-H", "content-type: application/grpc-web+proto"),
            *("--data-binary", f"@{tmp_path / 'body'}"),
        )
        assert done.returncode == 0, done.stderr
        size = int.from_bytes(done.stdout[1:5], "big")
        assert Completion.FromString(done.stdout[5 : 5 + size]).tokens == 3
        assert b"grpc-status: 0" in done.stdout[5 + size :].lower().replace(b":0", b": 0")


class TestClientCertificates:
    def serve(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, **table: Any
    ) -> GatewayProcess:
        return gateway(
            [web],
            cluster=CLUSTER,
            **edge(authority.leaf(), client_ca=str(authority.file), **table),
        )

    def test_what_is_told_upstream(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, curl: Any
    ) -> None:
        """And what the client itself says of a certificate is not."""
        process = self.serve(gateway, web, authority, client_auth="required")
        leaf = authority.leaf("client.test", "spiffe://a.test/x", client=True)
        digest = hashlib.sha256(leaf.x509.public_bytes(Encoding.DER)).hexdigest()
        for option in ("--http2", "--http1.1"):
            done = curl(
                process,
                "/",
                option,
                *("--cert", leaf.certificate, "--key", leaf.private_key),
                *("-H", "X-Forwarded-Client-Cert: Hash=forged"),
            )
            assert done.returncode == 0, done.stderr
            wanted = (
                f'x-forwarded-client-cert: Hash={digest};Subject="CN=client.test";'
                'URI="spiffe://a.test/x";DNS=client.test\r\n'
            )
            assert wanted.encode() in done.stdout
            assert b"forged" not in done.stdout

    def test_a_resumed_session_tells_the_same(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        process = self.serve(gateway, web, authority, client_auth="required")
        leaf = authority.leaf("client.test", client=True)
        session = ticket(process.port, authority, certificate=leaf)
        with TlsClient(process.port, authority, session=session) as client:
            assert client.tls.resumed
            assert b';Subject="CN=client.test"' in client.get()[2]

    def test_optional(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, curl: Any
    ) -> None:
        process = self.serve(gateway, web, authority, client_auth="optional")
        done = curl(process, "/", "-H", "X-Forwarded-Client-Cert: Hash=forged")
        assert done.returncode == 0, done.stderr
        assert b"x-forwarded-client-cert" not in done.stdout

    def test_required(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        curl: Any,
        tmp_path: Path,
    ) -> None:
        process = self.serve(gateway, web, authority, client_auth="required")
        done = curl(process, "/")
        assert done.returncode != 0
        assert b"alert certificate required" in done.stderr
        stranger = Authority(tmp_path, "somebody else's CA").leaf("client.test", client=True)
        done = curl(process, "/", "--cert", stranger.certificate, "--key", stranger.private_key)
        assert done.returncode != 0
        assert b"alert unknown ca" in done.stderr
        server = authority.leaf("client.test")
        done = curl(process, "/", "--cert", server.certificate, "--key", server.private_key)
        assert done.returncode != 0
        process.wait_for_counter("tls_handshake_failed", 3)
        assert not web.connections

    def test_revoked(
        self,
        gateway: StartGateway,
        web: RawBackend,
        authority: Authority,
        curl: Any,
        tmp_path: Path,
    ) -> None:
        good, revoked = (authority.leaf("client.test", client=True) for _ in range(2))
        crl = tmp_path / "crl.pem"
        crl.write_bytes(make_crl(authority.ca, [revoked.x509]))
        process = self.serve(gateway, web, authority, client_auth="required", client_crl=str(crl))

        def call(leaf: Leaf) -> Any:
            return curl(process, "/", "--cert", leaf.certificate, "--key", leaf.private_key)

        assert call(good).returncode == 0
        done = call(revoked)
        assert done.returncode != 0
        assert b"alert certificate revoked" in done.stderr


class TestSslyze:
    def scan(self, process: GatewayProcess, authority: Authority, *options: str) -> Any:
        if not SSLYZE.exists():
            reason = "no sslyze: make sslyze"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        done = subprocess.run(
            (
                *(str(SSLYZE), "--json_out=-", "--mozilla_config=disable"),
                *("--certinfo", f"--certinfo_ca_file={authority.file}", "--resum"),
                *("--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3"),
                *("--heartbleed", "--openssl_ccs", "--compression", "--reneg", "--fallback"),
                *("--robot", "--early_data", "--elliptic_curves", "--ems"),
                *("--resum_attempts=5", *options, f"localhost:{process.port}"),
            ),
            capture_output=True,
            check=True,
            timeout=2 * WAIT_S,
            env={**os.environ, "PYTHONPATH": ""},
        )
        (server,) = json.loads(done.stdout)["server_scan_results"]
        assert server["connectivity_status"] == "COMPLETED", server
        return {
            name: found["result"]
            for name, found in server["scan_result"].items()
            if found is not None and found["status"] == "COMPLETED"
        }

    def suites(self, result: Any, version: str) -> set[str]:
        accepted = result[f"{version}_cipher_suites"]["accepted_cipher_suites"]
        return {suite["cipher_suite"]["name"] for suite in accepted}

    @pytest.mark.parametrize("least", ["1.3", "1.2"])
    def test_nothing_weak(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, least: str
    ) -> None:
        leaf = authority.leaf()
        entry = leaf.entry(ocsp="file", ocsp_file=str(authority.staple(leaf)))
        process = gateway(
            [web], cluster={"idle_timeout": "500ms"}, **edge(entry, min_version=least)
        )
        result = self.scan(process, authority)
        assert self.suites(result, "tls_1_3") == {
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
        }
        wanted = {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        }
        assert self.suites(result, "tls_1_2") == (wanted if least == "1.2" else set())
        for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
            assert not self.suites(result, version)
        (deployment,) = result["certificate_info"]["certificate_deployments"]
        assert deployment["ocsp_response"]["certificate_status"] == "GOOD"
        assert deployment["ocsp_response_is_trusted"]
        assert any(
            path["was_validation_successful"] for path in deployment["path_validation_results"]
        )
        assert not result["heartbleed"]["is_vulnerable_to_heartbleed"]
        assert not result["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
        assert not result["tls_1_3_early_data"]["supports_early_data"]
        if least == "1.2":
            assert not result["tls_compression"]["supports_compression"]
            assert not result["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]
            assert result["session_renegotiation"]["supports_secure_renegotiation"]
            assert result["tls_extended_master_secret"]["supports_ems_extension"]
            assert result["tls_fallback_scsv"]["supports_fallback_scsv"]
            resumption = result["session_resumption"]
            assert resumption["tls_ticket_resumption_result"] == "FULLY_SUPPORTED"


class TestGrpc:
    @pytest.fixture
    def process(
        self, gateway: StartGateway, backend: StartBackend, authority: Authority
    ) -> GatewayProcess:
        self.server = backend("one")
        return gateway([self.server], workers=2, **edge(authority.leaf()))

    @pytest.fixture
    def calls(self, process: GatewayProcess, authority: Authority) -> Any:
        credentials = grpc.ssl_channel_credentials(authority.pem)
        with grpc.secure_channel(
            f"localhost:{process.port}",
            credentials,
            options=(("grpc.use_local_subchannel_pool", 1),),
        ) as channel:
            yield TokensStub(channel)

    def test_unary_and_streams(self, calls: Any) -> None:
        answer = calls.Complete(Prompt(tokens=5, payload_bytes=10_000), timeout=WAIT_S)
        assert answer.tokens == 5
        assert len(answer.payload) == 50_000
        tokens = list(calls.Generate(Prompt(tokens=50, payload_bytes=5_000), timeout=WAIT_S))
        assert [token.index for token in tokens] == list(range(50))
        prompts = (Prompt(tokens=2, last=number == 4) for number in range(5))
        assert len(list(calls.Chat(prompts, timeout=WAIT_S))) == 10

    def test_cancel(self, calls: Any) -> None:
        call = calls.Generate(Prompt(tokens=1000, interval_ms=3_600_000), timeout=WAIT_S)
        next(call)
        call.cancel()
        seen = self.server.next_call()
        assert seen.ended.wait(WAIT_S)
        assert not seen.served


def test_nghttp(site: Site, authority: Authority, tool: FindTool) -> None:
    process = site.process
    output = run((tool("nghttp"), "-v", f"https://{process.address}/x"))
    assert "The negotiated protocol: h2" in output
    assert ":status: 200" in output
    assert "GET /x HTTP/1.1" in output


def test_websocket(gateway: StartGateway, authority: Authority) -> None:
    def handler(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    context = ssl.create_default_context(cafile=str(authority.file))
    with serve(handler, "127.0.0.1", 0, max_size=2**24) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        class Server:
            address = f"127.0.0.1:{server.socket.getsockname()[1]}"

        try:
            process = gateway([Server()], cluster=CLUSTER, **edge(authority.leaf()))
            url = f"wss://{process.address}/echo"
            with websocket(url, ssl=context, max_size=2**24, legacy=True) as client:
                for message in ("hello", "\N{SNOWMAN}" * 100, os.urandom(MIB)):
                    client.send(message)
                    assert client.recv(WAIT_S) == message
        finally:
            server.shutdown()
            thread.join(WAIT_S)


class TestEdges:
    def test_proxy_protocol_before_tls(
        self, gateway: StartGateway, web: RawBackend, authority: Authority
    ) -> None:
        """In pieces, and with the ClientHello in one."""
        listener = {"proxy_protocol_from": ["127.0.0.0/8"]}
        process = gateway([web], cluster=CLUSTER, **edge(authority.leaf(), listener=listener))
        for write in (write_v1, write_v2):
            header = write(("203.0.113.5", 4711), ("198.51.100.1", 443))
            for size in (5, 100):
                with TlsClient(process.port, authority, shake_hands=False) as client:
                    with pytest.raises(SSL.WantReadError):
                        client.tls.connection.do_handshake()
                    octets = header + client.tls.outgoing()
                    for start in range(0, len(octets), size):
                        client.tls.sock.sendall(octets[start : start + size])
                    client.tls.handshake()
                    body = client.get()[2]
                assert b"\r\nx-forwarded-for: 203.0.113.5\r\n" in body
                assert b"\r\nx-forwarded-proto: https\r\n" in body

    def test_unix_socket(
        self, gateway: StartGateway, web: RawBackend, authority: Authority, tmp_path: Path
    ) -> None:
        path = tmp_path / "edge.sock"
        gateway(
            [web], cluster=CLUSTER, **edge(authority.leaf(), listener={"address": f"unix:{path}"})
        )
        with TlsClient(path, authority) as client:
            assert client.get("/x")[2].startswith(b"GET /x HTTP/1.1\r\n")

    def test_octet_by_octet(self, site: Site, authority: Authority) -> None:
        """However the stream is cut, records are records."""
        process = site.process

        with TlsClient(process.port, authority, shake_hands=False) as client:
            whole = client.tls.sock

            class Cut:
                def sendall(self, data: bytes) -> None:
                    for octet in data:
                        whole.sendall(bytes((octet,)))

                def __getattr__(self, name: str) -> Any:
                    return getattr(whole, name)

            client.tls.sock = Cut()  # type: ignore[assignment]
            client.tls.handshake()
            for _ in range(3):
                assert client.get()[0] == 200

    @pytest.mark.parametrize("protocol", [HTTP1, H2, b""])
    def test_the_protocol_without_alpn_is_told_by_the_preface(
        self, site: Site, authority: Authority, protocol: bytes
    ) -> None:
        process = site.process
        offered = (protocol,) if protocol else ()
        with TlsClient(process.port, authority, protocols=offered) as client:
            assert client.tls.connection.get_alpn_proto_negotiated() == protocol
            if protocol == H2:
                client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                client.until(b"\0\0\0\4\1\0\0\0\0")  # SETTINGS are acknowledged
            else:
                assert client.get()[0] == 200

    def test_a_slow_reader_is_bounded(
        self, gateway: StartGateway, stopping: Stopping, authority: Authority
    ) -> None:
        """The endpoint of an endless response is not read from when the client does not read."""
        stopped = threading.Event()

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            piece = b"10000\r\n" + bytes(65536) + b"\r\n"
            connection._sock.settimeout(1.0)
            try:
                for _ in range(4096):
                    connection.send(piece)
            except TimeoutError:
                stopped.set()
            connection.until_closed()

        process = gateway([stopping(RawBackend(script))], cluster=CLUSTER, **edge(authority.leaf()))
        sock = connect(process.port)
        with TlsClient(sock, authority) as slow:
            slow.send(GET)
            slow.until(b"\r\n\r\n")
            assert stopped.wait(WAIT_S)
            counters = process.counters()
            # What the kernels' buffers hold, and a few windows.
            assert counters["upstream_bytes_in"] < 16 * MIB
            held = counters["upstream_bytes_in"] - counters["downstream_bytes_out"]
            assert abs(held) < 2 * MIB
        process.wait_until_idle()

    def test_an_abrupt_end_cancels(
        self, gateway: StartGateway, stopping: Stopping, authority: Authority
    ) -> None:
        """A FIN without close_notify in the midst of a request is not its end."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.until_closed()

        backend = stopping(RawBackend(script))
        process = gateway([backend], cluster=CLUSTER, **edge(authority.leaf()))
        with TlsClient(process.port, authority) as client:
            client.send(GET)
            process.wait_for_counter("requests", 1)
            client.tls.sock.close()
            assert backend.connection(0).ended.wait(WAIT_S)

    def test_a_clean_end(self, site: Site, authority: Authority) -> None:
        """After ``connection: close`` comes close_notify, so that the client has it whole."""
        process = site.process
        with TlsClient(process.port, authority) as client:
            client.send(LAST)
            assert client.rest().startswith(b"HTTP/1.1 200 OK\r\n")
            assert client.tls.ended

    def test_a_clean_end_after_a_large_response(
        self, gateway: StartGateway, stopping: Stopping, authority: Authority
    ) -> None:
        """Also to who reads so slowly that the last octets wait for the socket."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8388608\r\n\r\n")
            connection.send(bytes(8 * MIB))

        process = gateway([stopping(RawBackend(script))], cluster=CLUSTER, **edge(authority.leaf()))
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(WAIT_S)
            sock.connect((process.host, process.port))
            with TlsClient(sock, authority) as client:
                client.send(LAST)
                size = 0
                while data := client.sock.recv(65536):
                    size += len(data)
                assert size > 8 * MIB
                assert client.tls.ended

    def test_an_untrusted_server_is_left(
        self, site: Site, authority: Authority, tmp_path: Path
    ) -> None:
        process = site.process
        with pytest.raises(Alert, match="certificate verify failed"):
            TlsClient(process.port, Authority(tmp_path, "another"))
        process.wait_for_counter("tls_handshake_failed", 1)

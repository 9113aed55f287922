"""TLS with endpoints: whom the gateway believes, what it speaks with them, how it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.certs.make import make_leaf
from gateway.demo.tokens_pb2 import Prompt
from gateway.wire.proxy_protocol import ProxyHeaderReader

from .conftest import FindTool, OpenStub, StartGateway, Stopping
from .peers import NeverReadingPort
from .processes import WAIT_S, GatewayProcess, ServerProcess, free_port
from .raw import RawBackend, RawClient, RawConnection, echo
from .tls import GET, Authority, GrpcTlsBackend, Leaf, TlsBackend, edge

StartTls = Callable[..., TlsBackend]


class Endpoint:
    def __init__(self, address: str) -> None:
        self.address = address


@pytest.fixture
def tls(stopping: Stopping, authority: Authority) -> StartTls:
    """Start a server: ``tls(leaf, script=echo)``; see :class:`TlsBackend`."""

    def start(leaf: Leaf | None = None, script: Any = echo, **options: Any) -> TlsBackend:
        return stopping(TlsBackend(script, leaf or authority.leaf(), **options))

    return start


def cluster(authority: Authority, *, tls: dict[str, Any] | None = None, **more: Any) -> Any:
    """Arguments of ``gateway``: a cluster that trusts ``authority``."""
    return {
        "cluster": {
            "idle_timeout": "300ms",
            "tls": {"ca": str(authority.file), **(tls or {})},
            **more,
        }
    }


def ask(process: GatewayProcess, path: str = "/") -> tuple[int, bytes]:
    """Status and body."""
    with RawClient(process.port, GET.replace(b"/ ", path.encode() + b" ", 1)) as client:
        status, _, body = client.response()
        return status, body


class TestProtocols:
    @pytest.mark.parametrize("protocol", ["auto", "http1"])
    def test_http1(
        self, gateway: StartGateway, tls: StartTls, authority: Authority, protocol: str
    ) -> None:
        backend = tls()
        process = gateway([backend], **cluster(authority, protocol=protocol))
        for _ in range(3):
            status, body = ask(process, "/x")
            assert status == 200
            assert body.startswith(b"GET /x HTTP/1.1\r\nhost: localhost\r\n")
        assert len(backend.connections) == 1
        assert process.counters()["upstream_tls_handshakes"] == 1

    def test_http2(
        self,
        gateway: StartGateway,
        authority: Authority,
        tool: FindTool,
        stopping: Stopping,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "file").write_bytes(bytes(100_000))
        port, leaf = free_port(), authority.leaf()
        files = (str(leaf.private_key), str(leaf.certificate))
        stopping(ServerProcess((tool("nghttpd"), "-d", str(tmp_path), str(port), *files), port))
        process = gateway([Endpoint(f"https://localhost:{port}")], **cluster(authority))
        for _ in range(3):
            assert ask(process, "/file") == (200, bytes(100_000))
        counters = process.counters()
        assert counters["upstream_connections_opened"] == 1
        assert counters["upstream_tls_handshakes"] == 1

    def test_alpn_decides(self, gateway: StartGateway, tls: StartTls, authority: Authority) -> None:
        """A server that offers both is spoken to in HTTP/2; one that knows no ALPN in HTTP/1.1."""

        def script(connection: RawConnection) -> None:
            connection.exactly(24)
            connection.until_closed()

        both = tls(script=script, protocols=("h2", "http/1.1"))
        process = gateway([both], **cluster(authority, max_retries=0, connect_timeout="300ms"))
        ask(process)
        assert both.received.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        silent = tls(protocols=())
        assert ask(gateway([silent], **cluster(authority)))[0] == 200

    def test_large_bodies_both_ways(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        process = gateway([tls()], **cluster(authority))
        body = bytes(range(256)) * 4096
        with RawClient(process.port) as client:
            head = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(body)
            client.send(head + body)
            status, _, answer = client.response()
        assert status == 200
        assert answer.endswith(b"\r\n\r\n" + body)

    def test_connections_made_in_advance(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        """Their handshakes are complete before there is anything to say."""
        backend = tls()
        process = gateway([backend], **cluster(authority, protocol="http1", min_connections=2))
        process.wait_for_counter("upstream_tls_handshakes", 2)
        pause = threading.Event()
        for _ in range(1000):  # the server's end of the handshake may come later
            if len(backend.resumed) == 2:
                break
            pause.wait(0.01)
        assert len(backend.resumed) == 2
        assert ask(process)[0] == 200
        assert len(backend.connections) == 2
        process.signal()

    def test_proxy_protocol_comes_before_the_handshake(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        backend = tls()
        seen: list[Any] = []
        wrap = backend._run

        def run(connection: RawConnection) -> None:
            reader = ProxyHeaderReader()
            header = None
            while header is None:
                header = reader.feed(connection._sock.recv(1))
            seen.append(header.source)
            wrap(connection)

        backend._run = run  # type: ignore[method-assign]
        process = gateway([backend], **cluster(authority, proxy_protocol="v2"))
        with RawClient(process.port, GET) as client:
            assert client.response()[0] == 200
            assert seen == [client.sock.getsockname()]


class TestNames:
    def test_the_name_asked_for(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        """Without ``server_name`` the host of the address; none in SNI for an IP address
        (RFC 6066 section 3). A wildcard stands for one label."""
        given, named, numbered, wild = (
            tls(authority.leaf(name))
            for name in ("model.internal", "localhost", "127.0.0.1", "*.svc.internal")
        )
        trusted = {"ca": str(authority.file)}
        clusters = {
            "given": (given.address, {"server_name": "model.internal"}),
            "named": (f"https://localhost:{named.port}", {}),
            "numbered": (numbered.address, {}),
            "wild": (wild.address, {"server_name": "a.svc.internal"}),
            "wilder": (f"https://localhost:{wild.port}", {"server_name": "a.b.svc.internal"}),
        }
        process = gateway(
            [tls()],
            config={
                "routes": [{"match": {"path": f"/{name}"}, "cluster": name} for name in clusters],
                "clusters": {
                    name: {"endpoints": [{"address": address}], "tls": {**trusted, **more}}
                    for name, (address, more) in clusters.items()
                },
            },
        )
        status = {name: ask(process, f"/{name}")[0] for name in clusters}
        assert status == {"given": 200, "named": 200, "numbered": 200, "wild": 200, "wilder": 502}
        assert given.names == ["model.internal"]
        assert named.names == ["localhost"]
        assert numbered.names == [None]
        assert set(wild.names) == {"a.svc.internal", "a.b.svc.internal"}
        process.signal()

    def test_who_is_not_believed(
        self, gateway: StartGateway, tls: StartTls, authority: Authority, tmp_path: Path
    ) -> None:
        """The client learns the reason; no request reaches the endpoint."""
        past = datetime.now(UTC) - timedelta(days=10)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        stranger = Authority(tmp_path, "somebody else's CA")
        alone = stranger.ca
        cases = {
            "name": (authority.leaf("other.test"), b"IP address mismatch"),
            "expired": (
                authority.leaf(not_before=past, days=1.0),
                b"certificate has expired",
            ),
            "early": (
                authority.leaf(not_before=tomorrow, days=1.0),
                b"certificate is not yet valid",
            ),
            "self": (stranger.write(alone, chain=False), b"self-signed certificate"),
            "stranger": (
                stranger.write(make_leaf(alone, ["127.0.0.1"]), chain=False),
                b"unable to get local issuer certificate",
            ),
            "client": (authority.leaf("127.0.0.1", client=True), b"unsuitable certificate purpose"),
        }
        backends = {path: tls(leaf) for path, (leaf, _) in cases.items()}
        trusting = {"ca": str(authority.file)}
        process = gateway(
            [tls()],
            config={
                "routes": [{"match": {"path": f"/{path}"}, "cluster": path} for path in cases],
                "clusters": {
                    path: {"endpoints": [{"address": backend.address}], "tls": trusting}
                    for path, backend in backends.items()
                },
            },
            **cluster(authority),
        )
        for path, (_, reason) in cases.items():
            status, body = ask(process, f"/{path}")
            assert status in (502, 503)
            assert b"certificate verify failed" in body
            assert reason in body, path
            assert backends[path].received == b""
        assert process.counters()["upstream_tls_failed"] >= len(cases)
        assert ask(process)[0] == 200

    def test_without_verification_anybody_is(
        self, gateway: StartGateway, tls: StartTls, authority: Authority, tmp_path: Path
    ) -> None:
        stranger = Authority(tmp_path, "somebody else's CA")
        backend = tls(stranger.leaf("other.test"))
        tables: dict[str, Any] = {"cluster": {"idle_timeout": "300ms", "tls": {"verify": False}}}
        assert ask(gateway([backend], **tables))[0] == 200

    def test_the_authorities_of_the_system_do_not_know_ours(
        self, gateway: StartGateway, tls: StartTls
    ) -> None:
        status, body = ask(gateway([tls()], cluster={"idle_timeout": "300ms"}))
        assert status in (502, 503)
        assert b"certificate verify failed" in body


class TestClientCertificates:
    def test_what_we_prove_to_be(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        backend = tls(client_ca=authority)
        ours = authority.leaf("gateway.test", client=True).files()
        process = gateway([backend], **cluster(authority, tls=ours))
        assert ask(process)[0] == 200
        (peer,) = backend.peers
        assert (("commonName", "gateway.test"),) in peer["subject"]

    def test_without_one(self, gateway: StartGateway, tls: StartTls, authority: Authority) -> None:
        """In TLS 1.3 the refusal comes after our end of the handshake."""
        backend = tls(client_ca=authority)
        process = gateway([backend], **cluster(authority, max_retries=0))
        status, body = ask(process)
        assert status in (502, 503)
        assert b"certificate required" in body
        assert backend.received == b""


class TestResumption:
    def test_a_second_connection_resumes(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        backend = tls()
        process = gateway([backend], **cluster(authority))
        for number in range(3):
            assert ask(process)[0] == 200
            assert process.counters()["upstream_tls_resumptions"] == number
            process.wait_for_counter("upstream_connections_open", 0)
        assert backend.resumed == [False, True, True]

    def test_after_the_server_has_changed_its_keys(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        """A ticket that nobody knows costs a full handshake, and no request."""
        backend = tls()
        process = gateway([backend], **cluster(authority))
        assert ask(process)[0] == 200
        process.wait_for_counter("upstream_connections_open", 0)
        backend._context = tls().__dict__["_context"]
        assert ask(process)[0] == 200
        assert backend.resumed == [False, False]


class TestStaples:
    @pytest.mark.parametrize("stapled", [True, False])
    def test_required(
        self, gateway: StartGateway, authority: Authority, stopping: Stopping, stapled: bool
    ) -> None:
        """Behind another gateway."""
        leaf = authority.leaf()
        entry = leaf.entry()
        if stapled:
            entry = leaf.entry(ocsp="file", ocsp_file=str(authority.staple(leaf)))
        web = stopping(RawBackend(echo))
        inner = gateway([web], cluster={"idle_timeout": "300ms"}, **edge(entry))
        outer = gateway(
            [Endpoint(f"https://{inner.address}")],
            **cluster(authority, tls={"require_staple": True}),
        )
        status, body = ask(outer)
        if stapled:
            assert status == 200
            assert outer.counters()["upstream_tls_handshakes"] == 1
        else:
            assert status in (502, 503)
            assert b"the endpoint stapled no OCSP response" in body
            assert not web.connections


class TestEndings:
    def test_a_server_that_never_answers(
        self, gateway: StartGateway, authority: Authority, stopping: Stopping
    ) -> None:
        silent = stopping(NeverReadingPort())
        process = gateway(
            [Endpoint(f"https://{silent.address}")],
            **cluster(authority, connect_timeout="200ms", max_retries=0),
        )
        status, body = ask(process)
        assert status in (503, 504)
        assert b"no TLS handshake within 0.2 s" in body
        assert process.counters()["upstream_connect_timeout"] == 1
        process.wait_until_idle()

    def test_a_server_that_speaks_no_tls(
        self, gateway: StartGateway, authority: Authority, stopping: Stopping
    ) -> None:
        answers = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100), b"\x16\3\3\0\2\2"]

        def script(connection: RawConnection) -> None:
            connection._sock.recv(65536)
            connection.send(answers[connection.number % len(answers)])

        plain = stopping(RawBackend(script))
        process = gateway(
            [Endpoint(f"https://{plain.address}")],
            **cluster(authority, max_retries=0, backoff_base="1ms", backoff_max="1ms"),
        )
        for _ in answers:
            status, body = ask(process)
            assert status in (502, 503)
            assert b"cannot connect to" in body
        assert process.counters()["upstream_tls_failed"] >= len(answers)

    @pytest.mark.parametrize("truncated", [False, True])
    def test_a_response_that_ends_with_the_connection(
        self, gateway: StartGateway, tls: StartTls, authority: Authority, truncated: bool
    ) -> None:
        """Without close_notify somebody on the way may have cut it: the client must not take it
        for the whole."""

        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(b"HTTP/1.1 200 OK\r\n\r\nthe first half")

        process = gateway([tls(script=script, truncate=truncated)], **cluster(authority))
        with RawClient(process.port, GET) as client:
            head = client.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            chunks: list[bytes] = []

            def read() -> None:
                chunks.extend(client.chunks())

            if truncated:
                with pytest.raises((EOFError, ConnectionResetError)):
                    read()
            else:
                read()
                assert b"".join(chunks) == b"the first half"

    def test_a_response_with_a_length_needs_no_goodbye(
        self, gateway: StartGateway, tls: StartTls, authority: Authority
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nwhole"
            )

        process = gateway([tls(script=script, truncate=True)], **cluster(authority))
        for _ in range(3):
            assert ask(process) == (200, b"whole")


class TestGrpc:
    def test_calls(
        self,
        gateway: StartGateway,
        authority: Authority,
        stopping: Stopping,
        stub: OpenStub,
    ) -> None:
        server = stopping(GrpcTlsBackend(authority.leaf(), client_ca=authority))
        ours = authority.leaf("gateway.test", client=True).files()
        process = gateway([server], **cluster(authority, tls=ours))
        calls = stub(process)
        assert calls.Complete(Prompt(tokens=3), timeout=WAIT_S).tokens == 3
        tokens = list(calls.Generate(Prompt(tokens=30, payload_bytes=9_000), timeout=WAIT_S))
        assert [token.index for token in tokens] == list(range(30))
        call = calls.Generate(Prompt(tokens=1000, interval_ms=3_600_000), timeout=WAIT_S)
        next(call)
        call.cancel()
        process.wait_for_counter("exchanges_open", 0)
        assert process.counters()["upstream_tls_handshakes"] >= 1

    def test_a_wrong_authority(
        self,
        gateway: StartGateway,
        authority: Authority,
        stopping: Stopping,
        stub: OpenStub,
        tmp_path: Path,
    ) -> None:
        server = stopping(GrpcTlsBackend(authority.leaf()))
        process = gateway([server], **cluster(Authority(tmp_path, "another"), max_retries=0))
        with pytest.raises(grpc.RpcError) as failed:
            stub(process).Complete(Prompt(tokens=3), timeout=WAIT_S)
        error: Any = failed.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "certificate verify failed" in error.details()


def test_a_file_that_is_missing(
    gateway: StartGateway, authority: Authority, tmp_path: Path
) -> None:
    """At the start, in one line."""
    missing = {"tls": {"ca": str(tmp_path / "missing.pem")}}
    with pytest.raises(EOFError, match="missing.pem"):
        gateway([Endpoint("https://127.0.0.1:1")], cluster=missing)

"""What stands at the edges: PROXY protocol, trusted hops, unix sockets, compression, CORS."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.demo.tokens_pb2 import Completion, Prompt
from gateway.wire.proxy_protocol import ProxyHeaderReader, write_v1, write_v2

from .conftest import FindTool, OpenChannel, StartBackend, StartGateway, Stopping
from .processes import ServerProcess, free_port
from .raw import RawBackend, RawClient, RawConnection, echo

HTTP1 = {"protocol": "http1", "idle_timeout": "500ms"}
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n"
SOURCE = ("203.0.113.5", 4711)
DESTINATION = ("198.51.100.1", 443)


class TestProxyProtocol:
    @pytest.mark.parametrize("write", [write_v1, write_v2])
    def test_accepted_from_listed_sources(
        self, gateway: StartGateway, stopping: Stopping, write: Any
    ) -> None:
        backend = stopping(RawBackend(echo))
        listener = {"proxy_protocol_from": ["127.0.0.0/8"]}
        process = gateway([backend], cluster=HTTP1, listener=listener)
        octets = write(SOURCE, DESTINATION) + GET + b"\r\n"
        with RawClient(process.port) as client:
            for start in range(0, len(octets), 5):  # in pieces
                client.send(octets[start : start + 5])
            assert b"\r\nx-forwarded-for: 203.0.113.5\r\n" in client.response()[2]

    def test_over_http2(self, gateway: StartGateway, backend: StartBackend, tool: FindTool) -> None:
        """HAProxy, which sends the header, between curl and us."""
        listener = {"proxy_protocol_from": ["127.0.0.1"]}
        web = backend("one")
        process = gateway([web], listener=listener)
        port = free_port()
        config = (
            "defaults\n mode tcp\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n"
            f"listen main\n bind 127.0.0.1:{port}\n"
            f" server gateway 127.0.0.1:{process.port} send-proxy-v2\n"
        )
        file = process.path.with_name("haproxy.cfg")
        file.write_text(config)
        haproxy = ServerProcess((tool("haproxy"), "-db", "-f", str(file)), port)
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = channel.unary_unary(
                    "/gateway.demo.v1.Tokens/Complete",
                    request_serializer=Prompt.SerializeToString,
                    response_deserializer=Completion.FromString,
                )
                assert call(Prompt(tokens=3), timeout=20).tokens == 3
        finally:
            haproxy.stop()
        assert web.next_call().get("x-forwarded-for") == "127.0.0.1"

    def test_what_is_missing_or_malformed_is_closed(
        self, gateway: StartGateway, stopping: Stopping
    ) -> None:
        backend = stopping(RawBackend(echo))
        listener = {"proxy_protocol_from": ["127.0.0.0/8"]}
        process = gateway([backend], cluster=HTTP1, listener=listener)
        for octets in (GET + b"\r\n", b"PROXY TCP4 nonsense\r\n" + GET + b"\r\n"):
            with RawClient(process.port, octets) as client:
                try:
                    assert client.rest() == b""
                except ConnectionResetError:
                    assert client.received == b""
        assert process.counters()["proxy_header_error"] == 2
        assert not backend.connections

    def test_from_others_it_is_no_request(self, gateway: StartGateway, stopping: Stopping) -> None:
        process = gateway([stopping(RawBackend(echo))], cluster=HTTP1)
        with RawClient(process.port, write_v1(SOURCE, DESTINATION) + GET + b"\r\n") as client:
            assert client.response()[0] == 400

    @pytest.mark.parametrize("version", ["v1", "v2"])
    def test_sent_upstream(self, gateway: StartGateway, stopping: Stopping, version: str) -> None:
        """Each client's connection has its own; its requests share it."""
        seen: list[Any] = []

        def script(connection: RawConnection) -> None:
            reader = ProxyHeaderReader()
            header = None
            while header is None:
                header = reader.feed(connection.exactly(1))
            seen.append(header.source)
            echo(connection)

        backend = stopping(RawBackend(script))
        process = gateway([backend], cluster={**HTTP1, "proxy_protocol": version})
        ends = []
        for _ in range(2):
            with RawClient(process.port) as client:
                ends.append(client.sock.getsockname())
                for _ in range(3):
                    client.send(GET + b"\r\n")
                    assert client.response()[0] == 200
        assert seen == ends


class TestHops:
    @pytest.mark.parametrize(("hops", "believed"), [([], False), (["127.0.0.1"], True)])
    def test_forwarded_fields(
        self, gateway: StartGateway, stopping: Stopping, hops: list[str], believed: bool
    ) -> None:
        process = gateway(
            [stopping(RawBackend(echo))], cluster=HTTP1, listener={"trusted_hops": hops}
        )
        forged = b"X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n"
        with RawClient(process.port, GET + forged + b"\r\n") as client:
            body = client.response()[2]
        assert (b"x-forwarded-for: 203.0.113.9, 127.0.0.1\r\n" in body) is believed
        assert (b"x-forwarded-proto: https\r\n" in body) is believed
        assert (b"x-forwarded-proto: http\r\n" in body) is not believed

    def test_a_hash_on_the_client_sees_through_trusted_hops(
        self, gateway: StartGateway, stopping: Stopping
    ) -> None:
        """Clients behind one hop are spread, and each stays where it is."""
        backends = [stopping(RawBackend(echo)) for _ in range(3)]
        process = gateway(
            backends,
            cluster={**HTTP1, "policy": "ring_hash", "hash_on": "client"},
            listener={"trusted_hops": ["127.0.0.1"]},
        )
        with RawClient(process.port) as client:
            for number in range(30):
                for _ in range(2):
                    line = b"X-Forwarded-For: 203.0.113.%d\r\n\r\n" % number
                    client.send(GET + line)
                    assert client.response()[0] == 200
        homes = [
            sum(b"203.0.113.%d, " % number in backend.received for backend in backends)
            for number in range(30)
        ]
        assert homes == [1] * 30
        assert all(backend.connections for backend in backends)


def test_unix_sockets_on_both_sides(
    gateway: StartGateway, tmp_path: Path, tool: FindTool, stopping: Stopping
) -> None:
    """Two gateways in a row, a unix socket between them and before them."""
    backend = stopping(RawBackend(echo))
    inner, outer = tmp_path / "inner.sock", tmp_path / "outer.sock"
    gateway([backend], cluster=HTTP1, listener={"address": f"unix:{inner}"})

    class Inner:
        address = f"unix:{inner}"

    gateway([Inner()], cluster=HTTP1, listener={"address": f"unix:{outer}"})
    done = subprocess.run(
        (tool("curl"), "-s", "--max-time", "20", "--unix-socket", str(outer), "http://a.test/x"),
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"GET /x HTTP/1.1\r\nhost: a.test\r\n")


class TestCompression:
    def test_json_on_request(self, gateway: StartGateway, stopping: Stopping) -> None:
        answer = json.dumps(list(range(2000))).encode()

        def script(connection: RawConnection) -> None:
            while True:
                connection.head()
                connection.send(
                    b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\netag: "1"\r\n'
                    b"content-length: %d\r\n\r\n%s" % (len(answer), answer)
                )

        process = gateway(
            [stopping(RawBackend(script))], cluster=HTTP1, route={"compression": {"level": 6}}
        )
        with RawClient(process.port, GET + b"Accept-Encoding: gzip\r\n\r\n") as client:
            _, head, body = client.response()
            assert b"\r\ncontent-encoding: gzip\r\n" in head
            assert b'\r\netag: W/"1"\r\n' in head
            assert len(body) < len(answer) // 2
            assert gzip.decompress(body) == answer
            client.send(GET + b"\r\n")
            _, head, body = client.response()
            assert b"content-encoding" not in head
            assert body == answer

    def test_event_streams_are_left_alone(self, gateway: StartGateway, stopping: Stopping) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n"
            )
            connection.until_closed()

        process = gateway([stopping(RawBackend(script))], cluster=HTTP1, route={"compression": {}})
        with RawClient(process.port, GET + b"Accept-Encoding: gzip\r\n\r\n") as client:
            _, head, body = client.response()
        assert b"content-encoding" not in head
        assert body == b"data: 1\n\n"

    @pytest.mark.parametrize(("on", "saved"), [(True, True), (False, False)])
    def test_grpc_messages(
        self,
        gateway: StartGateway,
        backend: StartBackend,
        channel: OpenChannel,
        on: bool,
        saved: bool,
    ) -> None:
        """grpcio, which takes gzip, gets the same messages in fewer octets."""
        process = gateway([backend("one")], route={"compression": {"grpc": on}})
        call = channel(process).unary_stream(
            "/gateway.demo.v1.Tokens/Generate",
            request_serializer=Prompt.SerializeToString,
            response_deserializer=lambda octets: len(octets),
        )
        sizes = list(call(Prompt(tokens=20, payload_bytes=20_000), timeout=20))
        assert len(sizes) == 20
        assert all(size > 20_000 for size in sizes)
        counters = process.counters()
        fewer = counters["downstream_bytes_out"] < counters["upstream_bytes_in"] / 10
        assert fewer is saved


def test_cors_fields_are_on_every_response(gateway: StartGateway, stopping: Stopping) -> None:
    backend = stopping(RawBackend(echo))
    cors = {"allow_origins": ["https://app.example.org"]}
    config = {"routes": [{"match": {"path": "/dead"}, "cluster": "dead", "cors": cors}]}
    dead = {"endpoints": [{"address": f"127.0.0.1:{free_port()}"}]}
    process = gateway(
        [backend],
        cluster=HTTP1,
        route={"cors": cors},
        config={**config, "clusters": {"dead": dead}},
    )
    origin = b"Origin: https://app.example.org\r\n\r\n"
    with RawClient(process.port) as client:
        for path, status in ((b"/", 200), (b"/dead", 502)):
            client.send(GET.replace(b"/ ", path + b" ", 1) + origin)
            got, head, _ = client.response()
            assert got == status
            assert b"\r\naccess-control-allow-origin: https://app.example.org\r\n" in head

"""WebSocket through the gateway: the ``websockets`` package on both ends.

Clients of HTTP/1.1 ask with an upgrade, clients of HTTP/2 with an extended CONNECT (RFC 8441); the
server is the same HTTP/1.1 server.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import Server, ServerConnection, serve
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Message, Ping, Pong, TextMessage

from .conftest import StartGateway, Stopping
from .processes import GatewayProcess
from .raw import RawBackend, RawConnection

CLUSTER = {"idle_timeout": "500ms"}


def echo(connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        for message in connection:
            if message == "close, please":
                connection.close(4000, "as you wish")
                return
            connection.send(message)


class EchoServer:
    def __init__(self) -> None:
        self._server: Server = serve(echo, "127.0.0.1", 0, max_size=2**24)
        self.address = f"127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(20)


@pytest.fixture
def server() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.stop()


def open_websocket(process: GatewayProcess, **options: Any) -> ClientConnection:
    return connect(f"ws://{process.address}/echo", max_size=2**24, legacy=True, **options)


class TestUpgrade:
    def test_text_and_binary(self, server: EchoServer, gateway: StartGateway) -> None:
        with open_websocket(gateway([server], cluster=CLUSTER)) as client:
            for message in ("hello", "", "\N{SNOWMAN}" * 100, b"\0\1\2", b"x" * 1_000_000):
                client.send(message)
                assert client.recv(20) == message

    def test_many_messages_in_flight(self, server: EchoServer, gateway: StartGateway) -> None:
        with open_websocket(gateway([server], cluster=CLUSTER), compression=None) as client:
            for number in range(500):
                client.send(str(number))
            assert [client.recv(20) for _ in range(500)] == [str(n) for n in range(500)]

    def test_ping_passes(self, server: EchoServer, gateway: StartGateway) -> None:
        with open_websocket(gateway([server], cluster=CLUSTER)) as client:
            assert client.ping(b"are you there").wait(20)

    def test_the_server_closes(self, server: EchoServer, gateway: StartGateway) -> None:
        with open_websocket(gateway([server], cluster=CLUSTER)) as client:
            client.send("close, please")
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(20)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "as you wish")

    def test_the_client_vanishes(self, server: EchoServer, gateway: StartGateway) -> None:
        """Nothing is left open; the fixture looks at that."""
        process = gateway([server], cluster=CLUSTER)
        client = open_websocket(process)
        client.send("x")
        assert client.recv(20) == "x"
        client.socket.shutdown(socket.SHUT_RDWR)
        client.close_socket()
        process.wait_until_idle()

    def test_an_idle_tunnel_is_ended(self, server: EchoServer, gateway: StartGateway) -> None:
        process = gateway([server], cluster=CLUSTER, route={"idle_timeout": "200ms"})
        with (
            open_websocket(process, ping_interval=None) as client,
            pytest.raises(ConnectionClosed),
        ):
            client.recv(20)
        assert process.counters()["failure_idle_timeout"] == 1

    def test_a_route_may_refuse(self, server: EchoServer, gateway: StartGateway) -> None:
        """Without the upgrade the request is a plain one, which this server refuses."""
        process = gateway([server], cluster=CLUSTER, route={"websocket": False})
        with pytest.raises(InvalidStatus) as refused:
            open_websocket(process)
        assert refused.value.response.status_code == 426


class Http2Client:
    """One WebSocket over one HTTP/2 connection: h2 for the frames, wsproto for what is in them."""

    def __init__(self, process: GatewayProcess) -> None:
        self.sock = socket.create_connection((process.host, process.port))
        self.sock.settimeout(20)
        self.http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self.websocket = Connection(ConnectionType.CLIENT)
        self.status = b""
        self.ended = False
        self._events: list[object] = []
        self.http2.initiate_connection()
        self._flush()
        while not self.http2.remote_settings.enable_connect_protocol:
            self._read()
        self.http2.send_headers(
            1,
            [
                (b":method", b"CONNECT"),
                (b":protocol", b"websocket"),
                (b":scheme", b"http"),
                (b":authority", b"a.test"),
                (b":path", b"/echo"),
                (b"sec-websocket-version", b"13"),
            ],
        )
        self._flush()
        while not self.status:
            self._read()

    def _flush(self) -> None:
        self.sock.sendall(self.http2.data_to_send())

    def _read(self) -> None:
        data = self.sock.recv(65536)
        assert data, "the gateway closed the connection"
        for event in self.http2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status = dict(event.headers)[b":status"]
                self.fields = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.http2.acknowledge_received_data(event.flow_controlled_length, 1)
                if event.data:
                    self.websocket.receive_data(event.data)
                    self._events += self.websocket.events()
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.ended = True
        self._flush()

    def send(self, event: TextMessage | Ping | CloseConnection) -> None:
        self.http2.send_data(1, self.websocket.send(event))
        self._flush()

    def next(self) -> object:
        while not self._events:
            self._read()
        return self._events.pop(0)

    def text(self) -> str:
        """A whole text message."""
        text = ""
        while True:
            event = self.next()
            assert isinstance(event, Message)
            text += event.data
            if event.message_finished:
                return text


class TestExtendedConnect:
    def test_echo_ping_and_close(self, server: EchoServer, gateway: StartGateway) -> None:
        process = gateway([server], cluster=CLUSTER)
        client = Http2Client(process)
        with contextlib.closing(client.sock):
            assert client.status == b"200"
            assert b"sec-websocket-accept" not in client.fields
            assert b"upgrade" not in client.fields
            for text in ("hello", "x" * 10_000):
                client.send(TextMessage(data=text))
                assert client.text() == text
            client.send(Ping(payload=b"p"))
            answer = client.next()
            assert isinstance(answer, Pong)
            assert bytes(answer.payload) == b"p"
            client.send(TextMessage(data="close, please"))
            closing = client.next()
            assert isinstance(closing, CloseConnection)
            assert (closing.code, closing.reason) == (4000, "as you wish")
            client.send(closing.response())
            while not client.ended:
                client._read()

    def test_a_server_that_did_not_read_the_key(
        self, gateway: StartGateway, stopping: Stopping
    ) -> None:
        def script(connection: RawConnection) -> None:
            connection.head()
            connection.send(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Accept: c29tZXRoaW5nIGVsc2U=\r\n\r\n"
            )
            connection.until_closed()

        backend = stopping(RawBackend(script))
        client = Http2Client(gateway([backend], cluster={**CLUSTER, "protocol": "http1"}))
        with contextlib.closing(client.sock):
            assert client.status == b"502"
        assert backend.connection(0).ended.wait(20)

    def test_other_protocols_are_refused(self, server: EchoServer, gateway: StartGateway) -> None:
        process = gateway([server], cluster=CLUSTER, route={"websocket": False})
        client = Http2Client(process)
        with contextlib.closing(client.sock):
            assert client.status == b"501"

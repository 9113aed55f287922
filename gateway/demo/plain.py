"""Plain HTTP/2 for the demo and the tests: a server and a client on the ``h2`` library.

They share nothing with the gateway's own codec, so what passes between them and the gateway is
checked by somebody else's reading of RFC 9113. Both are small, blocking and slow.

The server is made to be bent: a test's misbehaving peer is an :class:`Http2Connection` with one
method replaced.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

Headers = list[tuple[str, str]]
READ_BYTES = 1 << 18
WINDOW_BYTES = (1 << 24) - 1
GOAWAY = 7
"""The frame's type (RFC 9113 section 6.8)."""


@dataclass
class Message:
    """A request or a response, whole. Pseudo-fields stand among ``headers``, in order."""

    headers: Headers
    body: bytes | bytearray = b""
    trailers: Headers | None = None
    informational: list[Headers] = field(default_factory=list)
    """The 1xx heads that came, or are to be sent, before the final one (responses only)."""

    def get(self, name: str) -> str | None:
        """The value of the first field ``name``, trailers included, or None."""
        fields = [*self.headers, *(self.trailers or ())]
        return next((value for key, value in fields if key == name), None)

    def values(self, name: str) -> list[str]:
        """The values of all fields ``name`` of the head, in order."""
        return [value for key, value in self.headers if key == name]

    @property
    def status(self) -> int:
        """The ``:status`` of a response; 0 of a request."""
        return int(self.get(":status") or 0)


Handler = Callable[[Message], Message]


class Http2Connection:
    """One accepted connection of a :class:`Http2Server`, served by a thread of its own.

    ``lock`` guards ``h2`` (the library's state machine) and the order of what is written, so that
    a test may speak on a connection from outside its thread.
    """

    def __init__(self, server: Http2Server, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.lock = threading.RLock()
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.requests: dict[int, Message] = {}
        """Requests that came, whole or in part, by stream; one leaves when it is answered."""
        self._bodies: dict[int, deque[memoryview]] = {}
        self._trailers: dict[int, Headers | None] = {}

    def start(self) -> None:
        """Send the preface."""
        self.h2.initiate_connection()
        # Before the peer's acknowledgement the library still counts 64 KiB per stream.
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES})
        self.h2.increment_flow_control_window(WINDOW_BYTES)
        self.flush()

    def serve(self) -> None:
        """Read and answer until the connection is over."""
        with self.lock:
            self.start()
        while data := self.sock.recv(READ_BYTES):
            with self.lock:
                try:
                    events = self.h2.receive_data(data)
                except h2.exceptions.ProtocolError as error:
                    self.server.errors.append(repr(error))
                    self.flush()
                    return
                for event in events:
                    self.on_event(event)
                self.flush()

    def on_event(self, event: h2.events.Event) -> None:
        """Take one event of the library; called with the lock held."""
        if isinstance(event, h2.events.RequestReceived):
            self.requests[_stream(event)] = Message(_headers(event), bytearray())
            self.on_request_head(_stream(event))
        elif isinstance(event, h2.events.DataReceived):
            request = self.requests.get(_stream(event))
            if request is not None and event.data is not None:
                request.body += event.data
            if event.flow_controlled_length:
                self.on_flow_controlled(_stream(event), event.flow_controlled_length)
        elif isinstance(event, h2.events.TrailersReceived):
            request = self.requests.get(_stream(event))
            if request is not None:
                request.trailers = _headers(event)
        elif isinstance(event, h2.events.StreamEnded):
            if _stream(event) in self.requests:
                self.on_request(_stream(event))
        elif isinstance(event, h2.events.StreamReset):
            self.on_reset(_stream(event))
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for stream_id in list(self._bodies):
                self._send_body(stream_id)

    def on_request_head(self, stream_id: int) -> None:
        """A request's head has come, its body not yet."""

    def on_flow_controlled(self, stream_id: int, length: int) -> None:
        """Give the receive window back."""
        self.h2.acknowledge_received_data(length, stream_id)

    def on_request(self, stream_id: int) -> None:
        """A request has come whole: answer it."""
        self.respond(stream_id, self.server.handler(self.requests[stream_id]))

    def on_reset(self, stream_id: int) -> None:
        """The peer has given a stream up."""
        self.forget(stream_id)
        self.server.resets.append(stream_id)

    def respond(self, stream_id: int, response: Message) -> None:
        """Send ``response``, as much as the windows allow now and the rest as they open."""
        with self.lock:
            for head in response.informational:
                self.h2.send_headers(stream_id, head)
            if not response.body and response.trailers is None:
                self.h2.send_headers(stream_id, response.headers, end_stream=True)
                self.forget(stream_id)
            else:
                self.h2.send_headers(stream_id, response.headers)
                self._bodies[stream_id] = deque([memoryview(response.body)])
                self._trailers[stream_id] = response.trailers
                self._send_body(stream_id)
            self.flush()

    def reset(self, stream_id: int, code: h2.errors.ErrorCodes) -> None:
        """Send RST_STREAM."""
        with self.lock:
            self.h2.reset_stream(stream_id, code)
            self.forget(stream_id)
            self.flush()

    def forget(self, stream_id: int) -> None:
        """Drop what is kept of a stream."""
        self.requests.pop(stream_id, None)
        self._bodies.pop(stream_id, None)
        self._trailers.pop(stream_id, None)

    def flush(self) -> None:
        """Write what the library has gathered."""
        with self.lock:
            if data := self.h2.data_to_send():
                self.sock.sendall(data)

    def close(self, *, abort: bool = False) -> None:
        """End the TCP connection: with FIN, or with RST if ``abort``."""
        with contextlib.suppress(OSError):
            if abort:
                linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.sock.close()
            else:
                self.sock.shutdown(socket.SHUT_RDWR)

    def _send_body(self, stream_id: int) -> None:
        chunks = self._bodies[stream_id]
        trailers = self._trailers[stream_id]
        while chunks:
            room = self.h2.local_flow_control_window(stream_id)
            room = min(room, self.h2.max_outbound_frame_size)
            if room <= 0 and chunks[0]:
                return
            chunk = chunks.popleft()
            if len(chunk) > room:
                chunks.appendleft(chunk[room:])
            last = not chunks and trailers is None
            self.h2.send_data(stream_id, bytes(chunk[:room]), end_stream=last)
        if trailers is not None:
            self.h2.send_headers(stream_id, trailers, end_stream=True)
        self.forget(stream_id)


class Http2Server:
    """A cleartext HTTP/2 server (prior knowledge) on ``host``, a thread per connection.

    ``handler`` makes the response of each request; ``connection`` is the class that speaks.
    ``errors`` are protocol errors of the peers, ``resets`` the streams they reset.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        connection: type[Http2Connection] = Http2Connection,
        receive_buffer: int | None = None,
    ) -> None:
        self.handler = handler
        self.connections: list[Http2Connection] = []
        self.errors: list[str] = []
        self.resets: list[int] = []
        self._connection = connection
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sock.bind((host, port))
        self._sock.listen(128)
        self.port: int = self._sock.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """Close the listening socket and all connections; returns when their threads ended."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._accepting.join()
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._connection(self, sock)
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Http2Connection) -> None:
        with contextlib.suppress(OSError), connection.sock:
            connection.serve()


class Http2Client:
    """A blocking client of one connection; a context manager.

    :meth:`request` for one request at a time; :meth:`send`, then :meth:`receive` for several.
    """

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self.sock = socket.create_connection((host, port), timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._authority = f"{host}:{port}"
        self._responses: dict[int, Message] = {}
        self._ended: set[int] = set()
        self._resets: dict[int, str] = {}
        self.goaways: list[tuple[int, int]] = []
        """Last stream id and error code of each GOAWAY that came."""
        self._unread = bytearray()
        self.h2.initiate_connection()
        self.flush()

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def request(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        trailers: Headers | None = None,
    ) -> Message:
        """Send a request and return its response; :exc:`ConnectionError` if there is none."""
        return self.receive(self.send(method, path, headers, body, trailers))

    def send(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        trailers: Headers | None = None,
        *,
        end: bool = True,
    ) -> int:
        """Send a request, open-ended if not ``end``, and return its stream id.

        Waits for receive window, and stops sending when the response is whole before the request.
        """
        stream_id: int = self.h2.get_next_available_stream_id()
        given = list(headers)
        authority = next((value for name, value in given if name == ":authority"), self._authority)
        head = [
            (":method", method),
            (":scheme", "http"),
            (":authority", authority),
            (":path", path),
            *((name, value) for name, value in given if name != ":authority"),
        ]
        end_with_body = end and trailers is None
        self._responses[stream_id] = Message([], bytearray())
        self.h2.send_headers(stream_id, head, end_stream=end_with_body and not body)
        rest = memoryview(body)
        while rest and stream_id not in self._ended:
            room = self.h2.local_flow_control_window(stream_id)
            room = min(room, self.h2.max_outbound_frame_size, len(rest))
            if room > 0:
                chunk, rest = rest[:room], rest[room:]
                self.h2.send_data(stream_id, bytes(chunk), end_stream=end_with_body and not rest)
                self.flush()
            else:
                self._read()
        if trailers is not None and stream_id not in self._ended:
            self.h2.send_headers(stream_id, trailers, end_stream=True)
        self.flush()
        return stream_id

    def receive(self, stream_id: int) -> Message:
        """The whole response; :exc:`ConnectionError` if it does not come."""
        while stream_id not in self._ended:
            self._read()
        if stream_id in self._resets:
            raise ConnectionResetError(f"the stream was reset: {self._resets[stream_id]}")
        return self._responses.pop(stream_id)

    def receive_head(self, stream_id: int) -> Headers:
        """The response's head, as soon as it has come."""
        while not self._responses[stream_id].headers:
            if stream_id in self._resets:
                raise ConnectionResetError(f"the stream was reset: {self._resets[stream_id]}")
            self._read()
        return self._responses[stream_id].headers

    def flush(self) -> None:
        """Write what the library has gathered."""
        if data := self.h2.data_to_send():
            self.sock.sendall(data)

    def _read(self) -> None:
        data = self.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection ended before the response did")
        for event in self.h2.receive_data(self._without_goaway(data)):
            self._take(event)
        self.flush()

    def _without_goaway(self, data: bytes) -> bytes:
        # The library takes a GOAWAY for the end of the connection, streams that go on included.
        self._unread += data
        kept = bytearray()
        while len(self._unread) >= 9:
            length = 9 + int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < length:
                break
            frame = self._unread[:length]
            del self._unread[:length]
            if frame[3] != GOAWAY:
                kept += frame
                continue
            last_stream_id = int.from_bytes(frame[9:13], "big")
            code = int.from_bytes(frame[13:17], "big")
            self.goaways.append((last_stream_id, code))
            if code:
                raise ConnectionResetError(f"the peer says GOAWAY with error code {code}")
        return bytes(kept)

    def _take(self, event: h2.events.Event) -> None:
        stream_id = getattr(event, "stream_id", None)
        response = self._responses.get(stream_id or 0)
        if stream_id is None or response is None:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            response.informational.append(_headers(event))
        elif isinstance(event, h2.events.ResponseReceived):
            response.headers = _headers(event)
        elif isinstance(event, h2.events.TrailersReceived):
            response.trailers = _headers(event)
        elif isinstance(event, h2.events.DataReceived):
            response.body += event.data or b""
            self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self._ended.add(stream_id)
        elif isinstance(event, h2.events.StreamReset) and stream_id not in self._ended:
            self._ended.add(stream_id)
            self._resets[stream_id] = repr(event.error_code)


def response(
    status: int,
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    trailers: Headers | None = None,
) -> Message:
    """A response to be sent. ``content-length`` is left to the caller."""
    return Message([(":status", str(status)), *headers], body, trailers)


def _headers(event: object) -> Headers:
    return [(name, value) for name, value in getattr(event, "headers", None) or ()]


def _stream(event: h2.events.Event) -> int:
    stream_id = getattr(event, "stream_id", None)
    assert isinstance(stream_id, int)
    return stream_id

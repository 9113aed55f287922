"""Server-sent events over HTTP/1.1, both ends: one stream on each connection.

An event is ``data: `` with the time at which it was sent in 16 hexadecimal digits, and padding. Its
client looks for events wherever they are in what it reads, so that it does not matter how a proxy
cut the body into chunks.
"""

from __future__ import annotations

import socket
import time
from array import array
from contextlib import suppress

_CHUNK = 65_536
_START = b"data: "
_EVENT = len(_START) + 16
_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\n"
    b"Host: benchmark.test\r\n"
    b"Accept: text/event-stream\r\n"
    b"Content-Type: application/json\r\n"
    b"User-Agent: benchmark/1.0\r\n"
    b"Content-Length: 17\r\n\r\n"
    b'{"stream": true}\n'
)


class Broken(Exception):
    """The proxy ended a stream, or sent something that is not an event."""


class EventStream:
    """What the wheel of the backend holds: the connection is the stream."""

    __slots__ = ("connection", "open")

    def __init__(self, connection: EventSender) -> None:
        self.connection = connection
        self.open = True


class EventSender:
    """The backend's end of a connection: the first request begins a stream without end."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.out = bytearray()
        self._asked = b""
        self._stream: EventStream | None = None
        self._padding = b"t" * max(0, size - _EVENT)

    def receive(self, data: bytes) -> list[EventStream]:
        """Take what came; the stream that it opened."""
        if self._stream is not None:
            return []
        self._asked += data
        if b"\r\n\r\n" not in self._asked or not self._asked.endswith(b"\n"):
            return []
        self._stream = EventStream(self)
        self.out += _HEAD
        return [self._stream]

    def message(self, _stream: EventStream, now_ns: int) -> bool:
        """Send an event; False if the socket takes too little."""
        if len(self.out) > _CHUNK:
            return False
        event = b"%s%016x%s\n\n" % (_START, now_ns, self._padding)
        self.out += b"%x\r\n%s\r\n" % (len(event), event)
        return True

    def flush(self) -> None:
        """Write what the socket takes."""
        if self.out:
            with suppress(BlockingIOError):
                del self.out[: self.sock.send(self.out)]

    def lost(self) -> None:
        """Its stream gets nothing more."""
        if self._stream is not None:
            self._stream.open = False
        self.sock.close()


class EventReader:
    """The client's end of a connection.

    ``waiting`` is empty once an event came, ``read_ns`` is when the socket was last read.
    """

    def __init__(self, port: int) -> None:
        self.read_ns = 0
        self.waiting = {1}
        self._rest = b""
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(_REQUEST)
        self.sock.setblocking(False)

    def read(self, sent_ns: array[int]) -> int:
        """Take what came; the times at which its events were sent go to ``sent_ns``.

        Returns how many events those are. :exc:`Broken` if the stream ended.
        """
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            raise Broken("the proxy closed a connection")
        self.read_ns = time.monotonic_ns()
        data = self._rest + data
        found = 0
        end = 0
        at = data.find(_START)
        while at >= 0 and at + _EVENT <= len(data):
            end = at + _EVENT
            try:
                sent_ns.append(int(data[at + len(_START) : end], 16))
            except ValueError:
                raise Broken(f"not an event: {data[at:end]!r}") from None
            found += 1
            at = data.find(_START, end)
        # What may be the beginning of an event is kept.
        self._rest = data[at:] if at >= 0 else data[max(end, len(data) - len(_START) + 1) :]
        if found:
            self.waiting.clear()
        return found

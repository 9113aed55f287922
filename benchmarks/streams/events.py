"""Server-sent events over HTTP/1.1, both ends: one stream on each connection.

An event is ``data: ``, when it was sent (16 hexadecimal digits), its number in its stream (8 more),
padding, and the empty line that ends it. All are of one size, each is a chunk of its own when it is
sent. The client undoes the chunks, which a proxy may cut as it likes, and follows the numbers: an
event that is missing is counted, one that comes twice or in another order is an error.
"""

from __future__ import annotations

import socket
import time
from array import array
from typing import Final

SMALLEST: Final = 32
"""The bytes of an event without padding."""

_CHUNK = 65_536
_READ = 4_096
_DATA = b"data: "
_DIGITS = len(_DATA) + 24
_NUMBER = 0xFFFF_FFFF
_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"date: Tue, 01 Dec 2026 08:00:00 GMT\r\n"
    b"server: benchmark\r\n"
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
    """The backend's end of a connection: the head of a request begins a stream without end.

    ``size`` is that of an event, at least :data:`SMALLEST`.
    """

    __slots__ = ("_asked", "_lead", "_number", "_stream", "_tail", "out", "sock")

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.out = bytearray()
        self._asked = b""
        self._stream: EventStream | None = None
        self._number = 0
        self._lead = b"%x\r\n%s" % (size, _DATA)
        self._tail = b"t" * (size - SMALLEST) + b"\n\n\r\n"

    def receive(self, data: bytes) -> list[EventStream]:
        """Take what came; the stream that it opened."""
        if self._stream is not None:
            return []
        self._asked += data
        if b"\r\n\r\n" not in self._asked:
            return []
        self._stream = EventStream(self)
        self.out += _HEAD
        return [self._stream]

    def message(self, _stream: EventStream, now_ns: int) -> bool:
        """Send an event; False if the socket takes too little: then its number is missing."""
        number = self._number
        self._number = number + 1 & _NUMBER
        if len(self.out) > _CHUNK:
            return False
        self.out += b"%s%016x%08x%s" % (self._lead, now_ns, number, self._tail)
        return True

    def flush(self) -> None:
        """Write what the socket takes."""
        out = self.out
        if not out:
            return
        try:
            sent = self.sock.send(out)
        except BlockingIOError:
            return
        if sent == len(out):
            out.clear()
        else:
            del out[:sent]

    def lost(self) -> None:
        """Its stream gets nothing more."""
        if self._stream is not None:
            self._stream.open = False
        self.sock.close()


class EventReader:
    """The client's end of a connection.

    ``waiting`` is empty once an event came that was sent after :meth:`expect` was called, at first
    any. ``read_ns`` is when the socket was last read, ``lost`` how many numbers were missing so
    far among the events that came.
    """

    __slots__ = (
        "_body",
        "_chunk",
        "_expected",
        "_head",
        "_lead",
        "_line",
        "_since_ns",
        "_size",
        "lost",
        "read_ns",
        "sock",
        "waiting",
    )

    def __init__(self, port: int, size: int) -> None:
        self.read_ns = 0
        self.lost = 0
        self.waiting = {1}
        self._since_ns = 0
        self._size = size
        self._lead = b"%x\r\n%s" % (size, _DATA)
        self._expected = 0
        self._head: bytes | None = b""  # what came of it; None behind its end
        self._line = b""  # what came of the size of a chunk
        self._chunk = 0  # what is still to come of a chunk, with the CRLF that ends it
        self._body = b""  # what came of an event
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(_REQUEST)
        self.sock.setblocking(False)

    def expect(self, since_ns: int) -> None:
        """Wait for an event that was sent at ``since_ns`` or later."""
        self._since_ns = since_ns
        self.waiting.add(1)

    def read(self, sent_ns: array[int]) -> int:
        """Take what came; the times at which its events were sent go to ``sent_ns``.

        Returns how many events those are. :exc:`Broken` if the stream ended or is not what was
        sent.
        """
        try:
            data = self.sock.recv(_READ)
        except BlockingIOError:
            return 0
        if not data:
            raise Broken("the proxy closed a connection")
        self.read_ns = time.monotonic_ns()
        size = self._size
        # Nearly always: one event in one chunk. The load must cost less than what it measures.
        if (
            len(data) == len(self._lead) + size - 4  # _DATA is in both, CRLF behind it
            and data.startswith(self._lead)
            and not (self._chunk or self._body or self._line)
            and self._head is None
        ):
            body = data[len(self._lead) - len(_DATA) : -2]
        else:
            if self._head is not None:
                data = self._behind_head(data)
            body = self._body + self._without_chunks(data)
        whole = len(body) - len(body) % size
        for at in range(0, whole, size):
            if not body.startswith(_DATA, at) or not body.startswith(b"\n\n", at + size - 2):
                raise Broken(f"not an event: {body[at : at + size]!r}")
            try:
                both = int(body[at + len(_DATA) : at + _DIGITS], 16)
            except ValueError:
                raise Broken(f"not an event: {body[at : at + size]!r}") from None
            number = both & _NUMBER
            if number != self._expected:
                if number < self._expected:
                    raise Broken(f"event {number} came when {self._expected} was next")
                self.lost += number - self._expected
            self._expected = number + 1
            sent_ns.append(both >> 32)
        self._body = body[whole:]
        if self.waiting and whole and sent_ns[-1] >= self._since_ns:
            self.waiting.clear()
        return whole // size

    def _behind_head(self, data: bytes) -> bytes:
        head, end, rest = ((self._head or b"") + data).partition(b"\r\n\r\n")
        if not end:
            self._head = head
            return b""
        self._head = None
        if not head.startswith(b"HTTP/1.1 200") or b"chunked" not in head.lower():
            raise Broken(f"not a stream of events: {head[:500]!r}")
        return rest

    def _without_chunks(self, data: bytes) -> bytes:
        """The body in ``data`` (RFC 9112 section 7.1)."""
        if self._line:
            data = self._line + data
            self._line = b""
        pieces = []
        i = 0
        n = len(data)
        while i < n:
            left = self._chunk
            if left:
                taken = min(left, n - i)
                if left > 2:
                    pieces.append(data[i : i + min(taken, left - 2)])
                self._chunk = left - taken
                i += taken
                continue
            end = data.find(b"\r\n", i)
            if end < 0:
                self._line = data[i:]
                break
            try:
                size = int(data[i:end].partition(b";")[0], 16)
            except ValueError:
                raise Broken(f"not the size of a chunk: {data[i:end]!r}") from None
            if size == 0:
                raise Broken("a stream ended")
            self._chunk = size + 2
            i = end + 2
        return b"".join(pieces)

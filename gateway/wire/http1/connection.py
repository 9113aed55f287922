"""What a server and a client of HTTP/1.1 have in common (RFC 9112).

**In.** A field section is collected until its empty line and read as a whole by
:mod:`~gateway.wire.http1.heads`; a body is cut into pieces by
:class:`~gateway.wire.http1.body.BodyReader` and handed to the stream's owner as it comes. Equal
field sections of a connection give the same head object, as equal header blocks do in HTTP/2, so
that what is derived from a head is derived once.

**Holding back.** There are no windows in HTTP/1.1, so a body that does not move on is held back by
not reading from the socket: above ``http1.max_body_buffer`` octets the codec says so with
``paused``. A server also stops reading when a request comes before the last one was answered
(pipelining): it waits in the socket, and here at most what one read had brought.

**Out.** A body is sent as it comes, in chunks where its length is not known. Above ``out_mark`` it
waits in the stream's ``pending``, framed already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http1, Http2
from gateway.head import Fields
from gateway.wire.codec import (
    ENDED,
    HOLDING,
    LOST,
    NEVER,
    OVERFLOW,
    READING,
    Codec,
    HeldOctets,
    Stream,
    StreamOwner,
)
from gateway.wire.fields import MalformedHead
from gateway.wire.http1.body import BodyReader
from gateway.wire.http1.writing import append_chunk, append_last_chunk

_ENDED: int = cython.declare(cython.int, ENDED)
_LOST: int = cython.declare(cython.int, LOST)
_OVERFLOW: int = cython.declare(cython.int, OVERFLOW)
_READING: int = cython.declare(cython.int, READING)
_HOLDING: int = cython.declare(cython.int, HOLDING)

REMEMBERED_HEAD: Final = 4096
"""Octets of a field section that is kept to be compared with the next one."""

_EMPTY: tuple = cython.declare(tuple, ())  # type: ignore[type-arg]


class Http1Codec(Codec):
    """Base of :class:`~gateway.wire.http1.server.Server` and
    :class:`~gateway.wire.http1.client.Client`.

    ``handler`` is the one of :class:`gateway.wire.http2.Connection`; a server's also has
    ``on_bad_body(stream, detail)``.
    """

    def begin_http1(
        self,
        client: cython.bint,
        http1: Http1,
        http2: Http2,
        handler: Any,
        budget: HeldOctets,
        flush_list: list[Any],
        token: Any,
        now: cython.double,
    ) -> None:
        """Set what both roles have."""
        self.begin_codec(client, http2.max_connection_buffer, flush_list, token)
        self._handler = handler
        self._limits: Any = http1
        self._budget = budget
        self._now = now
        self._rest = b""
        self._scanned = 0
        self._max_head = http1.max_head_size
        self._max_held = http1.max_body_buffer
        self._held = 0
        self._reader = BodyReader(http1.max_chunk_extensions, http1.max_head_size, http1.max_fields)
        self._in_body = False
        # Whether the connection goes on after the message under way.
        self._keep = True
        self._chunked_out = False
        self._skip_body = False
        self._owed = 0
        self._served = 0
        self._stream: Any = None
        self._last_head: Any = None
        self._last_octets: Any = None

    # -- in ----------------------------------------------------------------------------------

    def receive(self, data: bytes, now: cython.double) -> None:
        """Take what was read at time ``now`` (seconds, monotonic)."""
        if self.broken:
            return
        self._now = now
        if self._rest:
            data = self._rest + data
            self._rest = b""
        self._walk(data)

    def resume(self, now: cython.double) -> None:
        """Go on with input that waited."""
        self.resumable = False
        if self.broken or self.paused != _READING:
            return
        self._now = now
        data = self._rest
        self._rest = b""
        if data:
            self._walk(data)

    def _walk(self, data: bytes) -> None:
        n: cython.Py_ssize_t = len(data)
        i: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        while i < n and not self.broken:
            if self.paused != _READING:
                break
            if self._in_body:
                i = self._read_body(data, i)
            else:
                at = self._read_head(data, i)
                if at == i:
                    # Not whole yet, or not its turn.
                    break
                i = at
        if i < n and not self.broken:
            self._rest = data[i:] if i else data

    def _take_rest(self) -> None:
        """Hand on what waits although it was to be held back: no more will come."""
        self.paused = _READING
        while self._rest and not self.broken:
            data = self._rest
            self._rest = b""
            self._walk(data)
            if len(self._rest) == len(data):
                return
            self.paused = _READING

    def _head_end(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Where the field section that begins at ``i`` ends, -1 if it is not whole yet.

        What was searched before is not searched again when more comes octet by octet.
        """
        end: cython.Py_ssize_t = data.find(b"\r\n\r\n", i + self._scanned)
        if end >= 0:
            self._scanned = 0
            return end + 4
        self._scanned = max(0, len(data) - i - 3)
        return -1

    def _read_head(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the head at ``i``; where it ends, ``i`` if it is not whole."""
        raise NotImplementedError

    def _read_body(self, data: bytes, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Hand on a piece of the body; where the walk goes on."""
        reader: BodyReader = self._reader
        stream: Stream | None = self._stream
        try:
            i = reader.take(data, i)
        except MalformedHead as error:
            self._bad_body(error.reason)
            return len(data)
        piece: bytes = reader.piece
        end: cython.bint = reader.ended
        n: cython.Py_ssize_t = len(piece)
        if end:
            self._in_body = False
            if i < len(data):
                self._followed()
        if stream is None or not stream.open:
            return i
        trailers = reader.trailers
        last: cython.bint = end and not trailers
        if n or last:
            self._held += n
            if self._held > self._max_held and not end:
                self._stop_input(_HOLDING)
            if last:
                stream.remote_closed = True
            # Held here: what it does may end the stream, and with it the owner.
            owner: StreamOwner = stream.owner
            if self.client:
                owner.response_data(piece, last)
            else:
                owner.request_data(piece, last)
        if end and trailers and stream.open:
            stream.remote_closed = True
            owner = stream.owner
            if self.client:
                owner.response_trailers(trailers)
            else:
                owner.request_trailers(trailers)
        if end and stream.open:
            self._received_end()
        return i

    def _followed(self) -> None:
        """There is more input behind the end of a message."""

    def _bad_body(self, detail: str) -> None:
        """The peer's body is not framed as RFC 9112 says."""

    def _received_end(self) -> None:
        """All of the peer's message was received."""
        stream: Stream = self._stream
        if stream.local_closed:
            self._remove(stream, _ENDED, 0)

    def _stop_input(self, how: cython.int) -> None:
        self.paused = how
        self.touch()

    def _go_on(self) -> None:
        """Read again; what waits here is taken up when the turn ends."""
        self.paused = _READING
        self.resumable = True
        self.touch()

    def consume(self, stream: Stream, octets: cython.longlong) -> None:
        """``octets`` of the stream's data have moved on: its sender may send as many again."""
        if not stream.open:
            return
        self._held -= octets
        if self.paused == _HOLDING and self._held * 2 <= self._max_held:
            self._go_on()

    # -- out ---------------------------------------------------------------------------------

    def send_data(self, stream: Stream, data: bytes, end_stream: cython.bint) -> cython.Py_ssize_t:
        """Send body data as far as may be; see :class:`~gateway.wire.codec.Codec`."""
        n: cython.Py_ssize_t = len(data)
        if not stream.open:
            return n
        if self._skip_body:
            if end_stream:
                self._sent_end()
            return n
        if stream.pending is None and len(self.out) < self.out_mark:
            if n:
                if self._chunked_out:
                    append_chunk(self.out, data)
                else:
                    self.out += data
                self.touch()
            if end_stream:
                self._append_end(self.out, _EMPTY)
                self._sent_end()
            return n
        if stream.pending is None:
            stream.pending = bytearray()
        before: cython.Py_ssize_t = len(stream.pending)
        if n:
            if self._chunked_out:
                append_chunk(stream.pending, data)
            else:
                stream.pending += data
            self._owed += n
        if end_stream:
            self._append_end(stream.pending, _EMPTY)
            stream.pending_end = True
        self._budget.total += len(stream.pending) - before
        if self._budget.total > self._budget.limit:
            self._overflow(stream)
        return 0

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send trailers and with them the end, after whatever data still waits.

        Where the body is not chunked there is no place for them, and they are left out
        (RFC 9110 section 6.5.1 lets a recipient do so).
        """
        if not stream.open:
            return
        pending = stream.pending
        if pending is None:
            if not self._skip_body:
                self._append_end(self.out, fields)
            self._sent_end()
            return
        before: cython.Py_ssize_t = len(pending)
        self._append_end(pending, fields)
        stream.pending_end = True
        self._budget.total += len(pending) - before

    def _append_end(self, target: bytearray, trailers: Fields) -> None:
        if self._chunked_out:
            append_last_chunk(target, trailers)
            self.touch()

    def _overflow(self, stream: Stream) -> None:
        self._handler.count("process_buffer_limit")
        stream.detail = "the gateway holds gateway.max_buffered_bytes for slow peers"
        self._remove(stream, _OVERFLOW, 0)
        self._break(0, stream.detail)

    def flushed(self, now: cython.double) -> None:
        """Some of ``out`` was written to the transport at ``now``."""
        self._now = now
        stream: Stream | None = self._stream
        if stream is not None and stream.pending is not None:
            if len(self.out) * 2 < self.out_mark:
                self._pump()

    def _pump(self) -> None:
        """Move what waits to the out-buffer, up to its mark."""
        stream: Stream = self._stream
        pending: bytearray = stream.pending  # type: ignore[assignment]
        size: cython.Py_ssize_t = len(pending)
        moved: cython.Py_ssize_t = min(size, self.out_mark - len(self.out))
        drained: cython.longlong = self._owed
        if moved == size:
            self.out += pending
            stream.pending = None
        else:
            self.out += pending[:moved]
            del pending[:moved]
            # Of what moved, a little was framing: the owner hears of that at the end.
            drained = min(drained, moved)
        self._owed -= drained
        self._budget.total -= moved
        self.touch()
        owner: StreamOwner = stream.owner
        if drained:
            if self.client:
                owner.request_drained(drained)
            else:
                owner.response_drained(drained)
        if stream.open and stream.pending is None and stream.pending_end:
            self._sent_end()

    def _sent_end(self) -> None:
        """All of our message was sent."""
        stream: Stream = self._stream
        stream.local_closed = True
        if stream.remote_closed:
            self._remove(stream, _ENDED, 0)

    # -- the end of a message and of the connection ------------------------------------------

    def _forget(self, stream: Stream) -> StreamOwner:
        """Let go of the stream; its owner, who is not told."""
        stream.open = False
        self._stream = None
        self.streams.clear()
        self._held = 0
        self._owed = 0
        if stream.pending is not None:
            self._budget.total -= len(stream.pending)
            stream.pending = None
        owner: StreamOwner = stream.owner
        # The owner knows its streams: without this they would keep each other alive.
        stream.owner = None
        return owner

    def _remove(self, stream: Stream, why: cython.int, code: cython.longlong) -> None:
        """Forget the stream and tell its owner."""
        if not stream.open:
            return
        owner: StreamOwner | None = self._forget(stream)
        if why == _ENDED:
            self._served += 1
            if not self._keep:
                self.leaving = True
            if self.paused != _READING or self._rest:
                self._go_on()
        if owner is not None:
            if self.client:
                owner.response_closed(why, code)
            else:
                owner.request_closed(why, code)
        if not self.broken and self._stream is None:
            self._handler.on_idle()

    def _break(self, code: cython.int, detail: str) -> None:
        """The connection can't go on; what is in ``out`` is still written."""
        if self.broken:
            return
        self.broken = True
        self.deadline = NEVER
        self._rest = b""
        if self.paused != _READING:
            # What still comes is read and thrown away, so that the peer reads our answer.
            self.paused = _READING
        self.touch()
        self._handler.on_fault(code, detail)

    def lost(self, detail: str) -> None:
        """The transport is gone: the stream is lost. Nothing can be sent any more."""
        self.broken = True
        stream: Stream | None = self._stream
        if stream is not None:
            stream.detail = detail
            self._remove(stream, _LOST, 0)

    def is_finished(self) -> cython.bint:
        """Whether a graceful end is complete: no stream is left."""
        return self.broken or (self.leaving and self._stream is None)

    def __repr__(self) -> str:
        role = "client" if self.client else "server"
        return f"<Http1Codec {role} streams={len(self.streams)} out={len(self.out)}>"

"""The sending half of a connection: its out-buffer, windows, and the DATA that waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http2
from gateway.head import Fields
from gateway.wire import frames
from gateway.wire.codec import ENDED, NEVER, OVERFLOW, Codec, HeldOctets, Stream, StreamOwner
from gateway.wire.frames import ErrorCode, append_frame
from gateway.wire.hpack import Encoder, encode_literal

_MAX_WINDOW: int = cython.declare(cython.longlong, frames.MAX_WINDOW)
_DATA: int = cython.declare(cython.int, frames.DATA)
_HEADERS: int = cython.declare(cython.int, frames.HEADERS)
_CONTINUATION: int = cython.declare(cython.int, frames.CONTINUATION)
_END_STREAM: int = cython.declare(cython.int, frames.FLAG_END_STREAM)
_END_HEADERS: int = cython.declare(cython.int, frames.FLAG_END_HEADERS)

# Octets of one stream's pending DATA that are sent before the next stream has its turn.
_QUANTUM: int = cython.declare(cython.Py_ssize_t, 16_384)


class Sender(Codec):
    """Writes heads, DATA, trailers and resets of streams. Base of :class:`Connection`."""

    def __init__(
        self,
        client: bool,
        limits: Http2,
        handler: Any,
        budget: HeldOctets,
        flush_list: list[Any],
        token: Any,
        now: float,
    ) -> None:
        self.begin_codec(client, limits.max_connection_buffer, flush_list, token)
        self.send_window = frames.DEFAULT_WINDOW
        self._handler = handler
        self._limits = limits
        self._budget = budget
        self._encoder = Encoder(limits.header_table_size)
        self._now = now
        self.next_id = 1
        self._peer_max_frame = frames.DEFAULT_MAX_FRAME_SIZE
        self._peer_window = frames.DEFAULT_WINDOW
        self._stream_window = limits.initial_stream_window
        self._data_frames = 0
        # The first stream was opened since the last flush.
        self._fresh = False
        self._blocked: dict[int, Stream] = {}
        self._reset_ids: dict[int, None] = {}

    # -- streams -----------------------------------------------------------------------------

    def open_stream(
        self,
        owner: Any,
        fields: Fields,
        extra: Fields,
        end_stream: cython.bint,
        no_body: cython.bint,
    ) -> Stream:
        """See :meth:`gateway.wire.codec.Codec.open_stream`."""
        stream: Stream = Stream.__new__(Stream)
        stream.begin(self.next_id, owner, self._peer_window, self._stream_window)
        stream.no_body = no_body
        self.next_id += 2
        if self.next_id > frames.MAX_STREAM_ID:
            self.exhausted = True
        if not self.streams:
            self._fresh = True
        self.streams[stream.id] = stream
        self._write_section(stream.id, self._block(fields, extra), end_stream)
        if end_stream:
            stream.local_closed = True
        return stream

    def _finish(self, stream: Stream) -> None:
        """We sent END_STREAM."""
        stream.local_closed = True
        if stream.remote_closed:
            self._remove(stream, ENDED, 0)

    def _remove(self, stream: Stream, why: cython.int, code: cython.longlong) -> None:
        """Forget the stream; its owner is told unless ``why`` is negative."""
        if not stream.open:
            return
        stream.open = False
        self.streams.pop(stream.id, None)
        self._drop_held(stream)
        if stream.pending is not None:
            self._budget.total -= len(stream.pending)
            stream.pending = None
            self._blocked.pop(stream.id, None)
        owner: StreamOwner | None = stream.owner
        # The owner knows its streams: without this they would keep each other alive.
        stream.owner = None
        if why >= 0 and owner is not None:
            if self.client:
                owner.response_closed(why, code)
            else:
                owner.request_closed(why, code)
        if not self.streams:
            self._handler.on_idle()

    def _rst(self, stream_id: cython.longlong, code: cython.int) -> None:
        """Write RST_STREAM and remember the stream as one that we reset."""
        self.out += frames.rst_stream_frame(stream_id, code)
        self.touch()
        if stream_id not in self._reset_ids:
            self._reset_ids[stream_id] = None
            if len(self._reset_ids) > self._limits.max_closed_streams:
                # A dictionary keeps its order: the first one is the oldest.
                del self._reset_ids[next(iter(self._reset_ids))]

    def reset(self, stream: Stream, code: cython.int) -> None:
        """Reset a stream. Its owner asks for it, so its owner is not told."""
        if not stream.open:
            return
        self._remove(stream, -1, 0)
        self._rst(stream.id, code)

    # -- heads, DATA, trailers ---------------------------------------------------------------

    def _block(self, fields: Fields, extra: Fields) -> bytes:
        """Encode a head. What is in ``extra`` is new each time: no table would know it."""
        block: bytes = self._encoder.encode(fields)
        for name, value in extra:
            block += encode_literal(name, value)
        return block

    def _write_section(
        self, stream_id: cython.longlong, block: bytes, end_stream: cython.bint
    ) -> None:
        n: cython.Py_ssize_t = len(block)
        flags: cython.int = _END_STREAM if end_stream else 0
        most: cython.Py_ssize_t = self._peer_max_frame
        if n <= most:
            append_frame(self.out, _HEADERS, flags | _END_HEADERS, stream_id, block)
        else:
            append_frame(self.out, _HEADERS, flags, stream_id, block[:most])
            i: cython.Py_ssize_t = most
            while i < n:
                last: cython.int = _END_HEADERS if i + most >= n else 0
                append_frame(self.out, _CONTINUATION, last, stream_id, block[i : i + most])
                i += most
        self.touch()

    def send_head(
        self, stream: Stream, fields: Fields, extra: Fields, end_stream: cython.bint
    ) -> None:
        """Send a response head, an informational one included (server)."""
        if not stream.open:
            return
        self._write_section(stream.id, self._block(fields, extra), end_stream)
        if end_stream:
            self._finish(stream)

    def send_data(self, stream: Stream, data: bytes, end_stream: cython.bint) -> cython.Py_ssize_t:
        """Send DATA as far as windows and out-buffer let it; the octets that moved at once.

        The rest waits in the stream, and the owner gets ``*_drained(octets)`` as it moves.
        """
        n: cython.Py_ssize_t = len(data)
        if not stream.open:
            return n
        if (
            stream.pending is None
            and n <= stream.send_window
            and n <= self.send_window
            and n <= self._peer_max_frame
            and len(self.out) < self.out_mark
        ):
            if n or end_stream:
                append_frame(self.out, _DATA, _END_STREAM if end_stream else 0, stream.id, data)
                stream.send_window -= n
                self.send_window -= n
                self._data_frames += 1
                if not self.dirty:
                    self.dirty = True
                    self._flush_list.append(self._token)
                if end_stream:
                    self._finish(stream)
            return n
        if stream.pending is None:
            stream.pending = bytearray()
            # The clock here may be old: whoever looks next at a true one sets it.
            stream.blocked_since = NEVER
            self._blocked[stream.id] = stream
            self._schedule()
        if end_stream:
            stream.pending_end = True
        if not n and len(stream.pending):
            return 0
        stream.pending += data
        self._budget.total += n
        moved: cython.Py_ssize_t = self._move(stream, _MAX_WINDOW)
        self._complete(stream)
        if stream.open and stream.pending is not None and self._budget.total > self._budget.limit:
            self._overflow(stream)
        return moved

    def _overflow(self, stream: Stream) -> None:
        self._handler.count("process_buffer_limit")
        stream.detail = "the gateway holds gateway.max_buffered_bytes for slow peers"
        self._remove(stream, OVERFLOW, ErrorCode.ENHANCE_YOUR_CALM)
        self._rst(stream.id, ErrorCode.ENHANCE_YOUR_CALM)

    def send_trailers(self, stream: Stream, fields: Fields) -> None:
        """Send trailers and with them END_STREAM, after whatever DATA still waits."""
        if not stream.open:
            return
        if stream.pending is not None:
            stream.pending_trailers = fields
            stream.pending_end = True
            return
        self._write_section(stream.id, self._encoder.encode(fields), True)
        self._finish(stream)

    # -- what waits --------------------------------------------------------------------------

    def _move(self, stream: Stream, most: cython.longlong) -> cython.Py_ssize_t:
        """Send up to ``most`` octets of what waits in the stream; how many went."""
        pending: bytearray = stream.pending  # type: ignore[assignment]
        moved: cython.Py_ssize_t = 0
        room: cython.longlong
        size: cython.longlong
        left: cython.longlong = len(pending)
        end: cython.bint
        while left > 0 and len(self.out) < self.out_mark:
            room = min(stream.send_window, self.send_window, self._peer_max_frame, most - moved)
            if room <= 0:
                break
            size = min(left, room)
            left -= size
            end = left == 0 and stream.pending_end and stream.pending_trailers is None
            piece = bytes(pending[moved : moved + size])
            append_frame(self.out, _DATA, _END_STREAM if end else 0, stream.id, piece)
            stream.send_window -= size
            self.send_window -= size
            self._data_frames += 1
            moved += size
            if end:
                stream.local_closed = True
        if moved:
            del pending[:moved]
            self._budget.total -= moved
            stream.blocked_since = NEVER
            self.touch()
        return moved

    def _complete(self, stream: Stream) -> None:
        """What follows the waiting DATA goes out when none is left."""
        if not stream.open or stream.pending is None or len(stream.pending):
            return
        stream.pending = None
        self._blocked.pop(stream.id, None)
        trailers = stream.pending_trailers
        if trailers is not None:
            stream.pending_trailers = None
            self._write_section(stream.id, self._encoder.encode(trailers), True)
            self._finish(stream)
        elif stream.pending_end:
            if not stream.local_closed:
                append_frame(self.out, _DATA, _END_STREAM, stream.id, b"")
                self.touch()
            self._finish(stream)

    def _pump_stream(self, stream: Stream, most: cython.longlong) -> cython.Py_ssize_t:
        moved: cython.Py_ssize_t = self._move(stream, most)
        owner: StreamOwner | None = stream.owner
        if moved and owner is not None:
            if self.client:
                owner.request_drained(moved)
            else:
                owner.response_drained(moved)
        self._complete(stream)
        if moved and stream.pending is not None:
            # The next one to be served is the one that waited longest.
            self._blocked.pop(stream.id, None)
            self._blocked[stream.id] = stream
        return moved

    def pump(self) -> None:
        """Send what waits, in fair shares, now that a window opened or ``out`` drained."""
        stream: Stream
        progress: cython.bint = True
        while progress and self._blocked and not self.broken:
            progress = False
            for stream in list(self._blocked.values()):
                if len(self.out) >= self.out_mark or self.send_window <= 0:
                    return
                if not stream.open or stream.pending is None:
                    continue
                if stream.send_window <= 0 and len(stream.pending):
                    continue
                if self._pump_stream(stream, _QUANTUM):
                    progress = True

    def flushed(self, now: cython.double) -> None:
        """Some of ``out`` was written to the transport at ``now``."""
        self._now = now
        if self._fresh:
            self._fresh = False
            self._became_busy(now)
        if self._blocked and len(self.out) * 2 < self.out_mark:
            self.pump()

    # -- what :class:`~gateway.wire.http2.control.Control` adds --------------------------------

    def _drop_held(self, stream: Stream) -> None:
        """The stream is gone: what its owner did not consume counts no more."""

    def _became_busy(self, now: cython.double) -> None:
        """The first stream was opened."""

    def _schedule(self) -> None:
        """Find out when :meth:`check` has something to do."""

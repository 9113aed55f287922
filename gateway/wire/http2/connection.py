"""Walking the frames: DATA and field sections to their streams, the rest to :mod:`.control`."""

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
from gateway.wire import frames
from gateway.wire.codec import ENDED, NEVER, HeldOctets, Stream, StreamOwner
from gateway.wire.fields import MalformedHead, check_trailers, parse_request, parse_response
from gateway.wire.flood import Flood
from gateway.wire.frames import ErrorCode, uint31
from gateway.wire.hpack import HeaderBlock, HpackError
from gateway.wire.http2.control import Control
from gateway.wire.http2.fault import ConnectionFault

_DATA: int = cython.declare(cython.int, frames.DATA)
_HEADERS: int = cython.declare(cython.int, frames.HEADERS)
_PRIORITY: int = cython.declare(cython.int, frames.PRIORITY)
_RST_STREAM: int = cython.declare(cython.int, frames.RST_STREAM)
_SETTINGS: int = cython.declare(cython.int, frames.SETTINGS)
_PUSH_PROMISE: int = cython.declare(cython.int, frames.PUSH_PROMISE)
_PING: int = cython.declare(cython.int, frames.PING)
_GOAWAY: int = cython.declare(cython.int, frames.GOAWAY)
_WINDOW_UPDATE: int = cython.declare(cython.int, frames.WINDOW_UPDATE)
_CONTINUATION: int = cython.declare(cython.int, frames.CONTINUATION)
_ACK: int = cython.declare(cython.int, frames.FLAG_ACK)
_END_STREAM: int = cython.declare(cython.int, frames.FLAG_END_STREAM)
_END_HEADERS: int = cython.declare(cython.int, frames.FLAG_END_HEADERS)
_SPACE: int = cython.declare(cython.int, 0x20)
_PADDED: int = cython.declare(cython.int, frames.FLAG_PADDED)
_PRIORITY_FLAG: int = cython.declare(cython.int, frames.FLAG_PRIORITY)


def _refuse_http1(data: bytes) -> None:
    """Raise ConnectionFault for a server that answers our preface with text.

    A frame begins with a 0, the high octet of its length, because we allow none above 16 MiB. The
    code is how RFC 9113 section 7 says it: such a server is to be asked in HTTP/1.1.
    """
    if data[0] >= _SPACE:
        raise ConnectionFault(ErrorCode.HTTP_1_1_REQUIRED, "the endpoint speaks HTTP/1.1")


class Connection(Control):
    """Both roles of RFC 9113; ``client`` tells which. See the module for how it is used.

    ``handler`` must have ``on_request(stream, head)`` and ``on_bad_request(stream, kind, detail)``
    (server), ``on_ready()`` (client: the peer's SETTINGS came or changed), ``on_goaway(code,
    detail)``, ``on_idle()`` (the last stream went), ``on_fault(code, detail)`` (the connection is
    broken: flush and close) and ``count(name)`` for limits that were hit.
    """

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
        self._rest = b""
        self._preface_left = not client
        self._first_frame = True
        # The frame whose payload is being handed on piece by piece, and its stream (None: none).
        self._data_stream: Stream | None = None
        self._data_left = 0
        self._pad_left = 0
        self._in_data = False
        self._data_end = False
        # A field section that waits for its CONTINUATION frames.
        self._section_id = 0
        self._section = bytearray()
        self._section_flags = 0
        self._section_frames = 0
        self._max_frame = limits.max_frame_size
        Control.__init__(self, client, limits, handler, budget, flush_list, token, now)

    def receive(self, data: bytes, now: cython.double) -> None:
        """Take what was read at time ``now`` (seconds, monotonic)."""
        if self.broken:
            return
        self._now = now
        self.last_received = now
        # Whatever arrives shows that the peer lives, not the PING's answer alone.
        self._pong_at = NEVER
        if self._rest:
            data = self._rest + data
            self._rest = b""
        try:
            if self._first_frame and self.client:
                _refuse_http1(data)
            self._walk(data)
        except ConnectionFault as fault:
            self._break(fault.code, fault.detail, fault.counter)

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _walk(self, data: bytes) -> None:
        n: cython.Py_ssize_t = len(data)
        i: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        length: cython.Py_ssize_t
        kind: cython.int
        flags: cython.int
        stream_id: cython.longlong
        if self._preface_left:
            if n < 24:
                if not frames.PREFACE.startswith(data):
                    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not an HTTP/2 preface (3.4)")
                self._rest = data
                return
            if not data.startswith(frames.PREFACE):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not an HTTP/2 preface (3.4)")
            self._preface_left = False
            i = 24
        while not self.broken:
            if self._in_data:
                i = self._data_piece(data, i, n)
                if i == n:
                    break
                continue
            if n - i < 9:
                break
            length = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2]
            kind = data[i + 3]
            flags = data[i + 4]
            stream_id = uint31(data, i + 5)
            if length > self._max_frame:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"frame of {length} octets is above SETTINGS_MAX_FRAME_SIZE (4.2)",
                    "frame_size_error",
                )
            if self._section_id and (kind != _CONTINUATION or stream_id != self._section_id):
                raise ConnectionFault(
                    ErrorCode.PROTOCOL_ERROR, "a field section was interrupted (6.10)"
                )
            if self._first_frame:
                if kind != _SETTINGS or flags & _ACK:
                    raise ConnectionFault(
                        ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS (3.4)"
                    )
                if n - i >= 9 + length:
                    self._first_frame = False
                    self._preface_at = NEVER
            if kind == _DATA:
                if flags & _PADDED:
                    if length < 1:
                        raise ConnectionFault(
                            ErrorCode.FRAME_SIZE_ERROR, "no pad length (6.1)", "frame_size_error"
                        )
                    if n - i < 10:
                        break
                    self._data_frame(stream_id, length, flags, data[i + 9] + 1)
                    i += 10
                else:
                    self._data_frame(stream_id, length, flags, 0)
                    i += 9
                continue
            end = i + 9 + length
            if n < end:
                break
            if kind == _HEADERS:
                self._headers_frame(data, i + 9, end, stream_id, flags)
            elif kind == _WINDOW_UPDATE:
                self._window_update_frame(data, i + 9, length, stream_id)
            elif kind == _CONTINUATION:
                self._continuation_frame(data[i + 9 : end], stream_id, flags)
            elif kind == _RST_STREAM:
                self._rst_stream_frame(data[i + 9 : end], stream_id)
            elif kind == _SETTINGS:
                self._settings_frame(data[i + 9 : end], stream_id, flags)
            elif kind == _PING:
                self._ping_frame(data[i + 9 : end], stream_id, flags)
            elif kind == _GOAWAY:
                self._goaway_frame(data[i + 9 : end], stream_id)
            elif kind == _PRIORITY:
                self._priority_frame(length, data[i + 9 : end], stream_id)
            elif kind == _PUSH_PROMISE:
                raise ConnectionFault(
                    ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, but push is not enabled (8.4)"
                )
            else:
                self._flood(Flood.IGNORED)
            i = end
        if i < n and not self.broken:
            self._rest = data[i:] if i else data
            # A frame that has only begun; when frames before it were whole, its time starts now.
            if self._header_at == NEVER or (i and not self._section_id):
                self._header_at = self._now + self._limits.header_timeout_s
                if self._header_at < self.deadline:
                    self.deadline = self._header_at
        elif self._header_at != NEVER and not self._section_id:
            self._header_at = NEVER

    # -- DATA, RFC 9113 section 6.1 ----------------------------------------------------------

    def _data_frame(
        self,
        stream_id: cython.longlong,
        length: cython.Py_ssize_t,
        flags: cython.int,
        padding: cython.Py_ssize_t,
    ) -> None:
        """Begin a DATA frame; ``padding`` counts the pad length octet, 0 when not padded."""
        stream: Stream | None
        if stream_id == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "DATA on stream 0 (6.1)")
        if padding > length:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding exceeds the frame (6.1)")
        if length > self.recv_window:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR,
                "DATA above the connection's window (6.9.1)",
                "flow_control_error",
            )
        self.recv_window -= length
        if self._silent_pings:
            self._spoke()
        if self._sampling:
            self._flow.add(length)
        stream = self.streams.get(stream_id)
        if stream is None:
            if self._is_idle(stream_id):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream (5.1)")
            if (
                not self.client
                and stream_id not in self._reset_ids
                and not self._ignored(stream_id)
            ):
                self._stream_fault(stream_id, ErrorCode.STREAM_CLOSED, "DATA on a closed stream")
        elif stream.remote_closed:
            self._violate(stream, ErrorCode.STREAM_CLOSED, "DATA after END_STREAM (5.1)")
            stream = None
        elif length > stream.recv_window:
            self._handler.count("flow_control_error")
            self._violate(
                stream, ErrorCode.FLOW_CONTROL_ERROR, "DATA above the stream's window (6.9.1)"
            )
            stream = None
        elif not stream.head_done:
            # Only a client can meet this: a server's stream begins with its head.
            self._violate(stream, ErrorCode.PROTOCOL_ERROR, "DATA before the response head (8.1)")
            stream = None
        if stream is not None:
            stream.recv_window -= length
            stream.held += length
            self.held += length
            if length == padding and not flags & _END_STREAM:
                self._flood(Flood.EMPTY_DATA)
            if padding:
                self.consume(stream, padding)
        self._return_credit(length)
        self._in_data = True
        self._data_stream = stream
        self._data_left = length - padding
        self._pad_left = padding - 1 if padding else 0
        self._data_end = (flags & _END_STREAM) != 0

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _data_piece(
        self, data: bytes, i: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Hand on what is here of the DATA frame under way; where the walk goes on."""
        stream: Stream | None = self._data_stream
        take: cython.Py_ssize_t = n - i
        skip: cython.Py_ssize_t
        end: cython.bint
        piece: bytes
        if take > self._data_left:
            take = self._data_left
        self._data_left -= take
        skip = n - i - take
        if skip > self._pad_left:
            skip = self._pad_left
        self._pad_left -= skip
        self._in_data = self._data_left != 0 or self._pad_left != 0
        end = self._data_end and not self._in_data
        if stream is not None and stream.open and (take or end):
            if stream.expected >= 0:
                if take > stream.expected or (end and take != stream.expected):
                    self._violate(
                        stream,
                        ErrorCode.PROTOCOL_ERROR,
                        "DATA is not what content-length says (8.1.1)",
                    )
                    return i + take + skip
                stream.expected -= take
            piece = data[i : i + take]
            if end:
                stream.remote_closed = True
            # Held here: what it does may end the stream, and with it the owner.
            owner: StreamOwner = stream.owner
            if self.client:
                owner.response_data(piece, end)
            else:
                owner.request_data(piece, end)
            if end and stream.open and stream.local_closed:
                self._remove(stream, ENDED, 0)
        return i + take + skip

    # -- HEADERS and CONTINUATION, sections 6.2 and 6.10 -------------------------------------

    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _headers_frame(
        self,
        data: bytes,
        i: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        stream_id: cython.longlong,
        flags: cython.int,
    ) -> None:
        padding: cython.Py_ssize_t = 0
        if stream_id == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0 (6.2)")
        if flags & (_PADDED | _PRIORITY_FLAG):
            if flags & _PADDED:
                if i >= end:
                    raise ConnectionFault(
                        ErrorCode.FRAME_SIZE_ERROR, "no pad length (6.2)", "frame_size_error"
                    )
                padding = data[i]
                i += 1
            if flags & _PRIORITY_FLAG:
                if end - i < 5:
                    raise ConnectionFault(
                        ErrorCode.FRAME_SIZE_ERROR, "no priority fields (6.2)", "frame_size_error"
                    )
                if uint31(data, i) == stream_id:
                    raise ConnectionFault(
                        ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself"
                    )
                i += 5
            if padding > end - i:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding exceeds the frame (6.2)")
            end -= padding
        if flags & _END_HEADERS:
            self._section_done(data[i:end], stream_id, flags)
            return
        self._section_id = stream_id
        self._section = bytearray(data[i:end])
        self._section_flags = flags
        self._section_frames = 0
        if self._header_at == NEVER:
            self._header_at = self._now + self._limits.header_timeout_s
            self._schedule()

    def _continuation_frame(
        self, payload: bytes, stream_id: cython.longlong, flags: cython.int
    ) -> None:
        if not self._section_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS (6.10)")
        self._section += payload
        self._section_frames += 1
        if self._section_frames > self._limits.max_continuation_frames:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                "more CONTINUATION frames than http2.max_continuation_frames",
                "continuation_flood",
            )
        if len(self._section) > self._max_block:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                "a field section above http2.max_header_block",
                "header_block_too_large",
            )
        if flags & _END_HEADERS:
            block = bytes(self._section)
            self._section = bytearray()
            self._section_id = 0
            self._header_at = NEVER
            self._section_done(block, stream_id, self._section_flags)

    def _section_done(self, data: bytes, stream_id: cython.longlong, flags: cython.int) -> None:
        stream: Stream | None
        if len(data) > self._max_block:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                "a field section above http2.max_header_block",
                "header_block_too_large",
            )
        try:
            block = self._decoder.decode(data)
        except HpackError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, str(error), "hpack_error") from error
        if self._silent_pings:
            self._spoke()
        stream = self.streams.get(stream_id)
        if stream is not None:
            if stream.remote_closed:
                self._violate(stream, ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM (5.1)")
            elif self.client and not stream.head_done:
                self._response(stream, block, flags)
            else:
                self._trailers(stream, block, flags)
        elif self.client:
            if self._is_idle(stream_id):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "HEADERS on an idle stream (5.1)")
        else:
            self._request(stream_id, block, flags)

    def _request(self, stream_id: cython.longlong, block: HeaderBlock, flags: cython.int) -> None:
        stream: Stream
        if not stream_id & 1:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, "a client opened an even-numbered stream (5.1.1)"
            )
        if stream_id <= self._last_peer_id:
            if stream_id in self._reset_ids or self._ignored(stream_id):
                return
            raise ConnectionFault(
                ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream (5.1, 5.1.1)"
            )
        self._last_peer_id = stream_id
        if self._goaway_sent >= 0 and stream_id > self._goaway_sent:
            return
        if len(self.streams) >= self._max_streams:
            self._handler.count("concurrent_streams_exceeded")
            self._rst(stream_id, ErrorCode.REFUSED_STREAM)
            self._flood(Flood.RESETS)
            return
        stream = Stream.__new__(Stream)
        stream.begin(stream_id, None, self._peer_window, self._stream_window)
        stream.head_done = True
        if flags & _END_STREAM:
            stream.remote_closed = True
        if block.too_large:
            self.streams[stream_id] = stream
            if block.size > self._limits.max_header_list_size:
                self._handler.count("header_list_too_large")
                detail = "the header fields are above http2.max_header_list_size"
            else:
                self._handler.count("too_many_fields")
                detail = "the header fields are more than http2.max_fields"
            self._handler.on_bad_request(stream, "headers_too_large", detail)
            return
        head = block.memo
        if head is None:
            try:
                head = block.memo = parse_request(block.fields, extended_connect=True)
            except MalformedHead as error:
                self.streams[stream_id] = stream
                self._bad_request(stream, str(error))
                return
        stream.expected = head.content_length
        if stream.expected > 0 and stream.remote_closed:
            self.streams[stream_id] = stream
            self._bad_request(stream, "content-length announces a body that does not come (8.1.1)")
            return
        self.streams[stream_id] = stream
        self._handler.on_request(stream, head)

    def _bad_request(self, stream: Stream, detail: str) -> None:
        """A malformed request (8.1.1): a response that tells, then the stream error."""
        self._handler.count("protocol_error")
        self._handler.on_bad_request(stream, "malformed_request", detail)
        if stream.open:
            self._remove(stream, -1, 0)
        self._induced_reset(stream.id, ErrorCode.PROTOCOL_ERROR)

    def _response(self, stream: Stream, block: HeaderBlock, flags: cython.int) -> None:
        end: cython.bint = (flags & _END_STREAM) != 0
        if block.too_large:
            self._violate(
                stream,
                ErrorCode.ENHANCE_YOUR_CALM,
                "response head above http2.max_header_list_size",
            )
            return
        head = block.memo
        if head is None:
            try:
                head = block.memo = parse_response(block.fields)
            except MalformedHead as error:
                self._violate(stream, ErrorCode.PROTOCOL_ERROR, f"malformed response: {error}")
                return
        owner: StreamOwner = stream.owner
        status: cython.int = head.status
        if status < 200:
            if end or status == 101:
                self._violate(
                    stream, ErrorCode.PROTOCOL_ERROR, f"malformed response: status {status} (8.1)"
                )
                return
            # Nothing else bounds how many of them come (RFC 9110 section 15.2).
            self._flood(Flood.IGNORED)
            owner.response_informational(head)
            return
        stream.head_done = True
        if stream.no_body or status == 204 or status == 304:
            stream.expected = 0
        else:
            stream.expected = head.content_length
            if end and stream.expected > 0:
                self._violate(
                    stream,
                    ErrorCode.PROTOCOL_ERROR,
                    "malformed response: content-length announces a body that does not come",
                )
                return
        if end:
            stream.remote_closed = True
        owner.response_head(head, end)
        if end and stream.open and stream.local_closed:
            self._remove(stream, ENDED, 0)

    def _trailers(self, stream: Stream, block: HeaderBlock, flags: cython.int) -> None:
        if not flags & _END_STREAM:
            self._violate(stream, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM (8.1)")
            return
        if block.too_large:
            self._violate(
                stream, ErrorCode.ENHANCE_YOUR_CALM, "trailers above http2.max_header_list_size"
            )
            return
        if stream.expected > 0:
            self._violate(
                stream, ErrorCode.PROTOCOL_ERROR, "DATA is not what content-length says (8.1.1)"
            )
            return
        try:
            check_trailers(block.fields)
        except MalformedHead as error:
            self._violate(stream, ErrorCode.PROTOCOL_ERROR, f"malformed trailers: {error}")
            return
        stream.remote_closed = True
        owner: StreamOwner = stream.owner
        if self.client:
            owner.response_trailers(block.fields)
        else:
            owner.request_trailers(block.fields)
        if stream.open and stream.local_closed:
            self._remove(stream, ENDED, 0)

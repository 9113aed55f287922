"""One HTTP/2 connection, either end of it, without I/O (RFC 9113).

The same class is the server of a downstream and the client of an upstream connection.

**In.** :meth:`Connection.receive` walks the frames of what was read. What concerns the connection
goes to its ``handler``; what concerns a stream goes straight to the stream's ``owner``, by direct
call, as it is met. A server's owner gets ``request_*`` calls, a client's ``response_*`` calls, so
that one object can own both ends of a proxied exchange. DATA is handed on as far as it has come,
without waiting for the end of its frame. Every stream ends with exactly one ``*_closed`` call,
unless its owner itself reset it.

**Out.** Everything to be sent gathers in ``out``; the first octet of a turn puts ``token`` on the
``flush_list``, whose reader writes ``out`` to the socket and calls :meth:`Connection.flushed`. DATA
that may not be sent yet (stream window, connection window, or ``out`` above its mark) waits in the
stream's ``pending``, and the owner is told with ``*_drained`` when some of it has moved on.

**Stream states** (section 5.1). A stream object lives from its HEADERS until both halves are
closed or either side resets it::

                        local_closed=False          local_closed=True
    remote_closed=False open                        half-closed (local)
    remote_closed=True  half-closed (remote)        removed: closed

An identifier that is not in ``streams`` is idle above the highest one seen, else closed. Of the
closed ones we remember those that we reset, so that frames still under way to us are let pass;
on others such frames are answered as section 5.1 says.

**Windows.** Octets are given back to the sender of a stream when its owner says that they moved on
(:meth:`Connection.consume`): a stalled reader holds at most one stream window. The window of the
connection is given back at once, so that one stalled stream does not stop its neighbours; a server
withholds it from a client that has more than ``max_connection_window`` octets held.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http2
from gateway.head import Fields, RequestHead, ResponseHead
from gateway.wire import frames
from gateway.wire.fields import MalformedHead, check_trailers, parse_request, parse_response
from gateway.wire.flood import COUNTER_OF, Flood, FloodGuard
from gateway.wire.flow import BDP_PING, BandwidthDelay
from gateway.wire.frames import ErrorCode, Setting, frame_header
from gateway.wire.hpack import Decoder, Encoder, HeaderBlock, HpackError

# Why a stream was closed, as its owner is told.
ENDED: Final = 0
"""Both sides sent END_STREAM."""
RESET: Final = 1
"""The peer sent RST_STREAM; the code comes along."""
REFUSED: Final = 2
"""The peer did not process it (REFUSED_STREAM or GOAWAY): safe to send again."""
VIOLATION: Final = 3
"""The peer broke a rule on this stream and we reset it."""
LOST: Final = 4
"""The connection is gone."""
STALLED: Final = 5
"""The peer gave no window for ``stall_timeout``."""
OVERFLOW: Final = 6
"""The process holds more octets for slow peers than it may."""

KEEPALIVE_PING: Final = b"gw-alive"
DRAIN_PING: Final = b"gw-drain"
NEVER: Final = float("inf")

# Pings without a HEADERS or DATA frame from the server in between that grpc servers take before
# they close the connection with too_many_pings, and the interval that they always allow
# (gRFC A8; GRPC_ARG_HTTP2_MAX_PING_STRIKES 2, ..._MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS 300 s).
_SILENT_PINGS: int = cython.declare(cython.int, 3)
_SILENT_PING_INTERVAL_S: float = cython.declare(cython.double, 301.0)

_MAX_WINDOW: int = cython.declare(cython.longlong, 2**31 - 1)
_DATA: int = cython.declare(cython.int, 0x0)
_HEADERS: int = cython.declare(cython.int, 0x1)
_PRIORITY: int = cython.declare(cython.int, 0x2)
_RST_STREAM: int = cython.declare(cython.int, 0x3)
_SETTINGS: int = cython.declare(cython.int, 0x4)
_PUSH_PROMISE: int = cython.declare(cython.int, 0x5)
_PING: int = cython.declare(cython.int, 0x6)
_GOAWAY: int = cython.declare(cython.int, 0x7)
_WINDOW_UPDATE: int = cython.declare(cython.int, 0x8)
_CONTINUATION: int = cython.declare(cython.int, 0x9)
_ACK: int = cython.declare(cython.int, 0x1)
_END_STREAM: int = cython.declare(cython.int, 0x1)
_END_HEADERS: int = cython.declare(cython.int, 0x4)
_PADDED: int = cython.declare(cython.int, 0x8)
_PRIORITY_FLAG: int = cython.declare(cython.int, 0x20)

# Octets of one stream's pending DATA that are sent before the next stream has its turn.
_QUANTUM: int = cython.declare(cython.Py_ssize_t, 16_384)


class ConnectionFault(Exception):
    """The peer broke a rule for which RFC 9113 closes the connection. Raised and caught here."""

    def __init__(self, code: ErrorCode, detail: str, counter: str = "protocol_error") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.counter = counter


class HeldOctets:
    """What one process holds for slow peers, over all its connections, in octets."""

    __slots__ = ("limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0


@cython.cfunc
@cython.inline
@cython.boundscheck(False)
@cython.wraparound(False)
def _uint31(data: bytes, i: cython.Py_ssize_t) -> cython.longlong:
    """Four octets at ``i``, without their first bit, which is reserved. The caller checked them."""
    first: cython.longlong = data[i] & 0x7F
    return (first << 24) | (data[i + 1] << 16) | (data[i + 2] << 8) | data[i + 3]


@cython.final
@cython.cclass
class Stream:
    """One stream of a connection. ``owner`` is whoever is told what happens on it."""

    if cython.compiled:
        id: int = cython.declare(cython.longlong, visibility="readonly")
        owner: Any = cython.declare(object, visibility="public")
        local_closed: bool = cython.declare(cython.bint, visibility="readonly")
        remote_closed: bool = cython.declare(cython.bint, visibility="readonly")
        open: bool = cython.declare(cython.bint, visibility="readonly")
        no_body: bool = cython.declare(cython.bint, visibility="public")
        send_window: int = cython.declare(cython.longlong, visibility="readonly")
        recv_window: int = cython.declare(cython.longlong, visibility="readonly")
        pending: bytearray | None = cython.declare(object, visibility="readonly")
        detail: str = cython.declare(str, visibility="readonly")
        # Octets received and not yet consumed by the owner.
        held: int = cython.declare(cython.longlong, visibility="readonly")
        pending_trailers: Fields | None = cython.declare(object)
    else:
        __slots__ = (
            "blocked_since",
            "detail",
            "expected",
            "head_done",
            "held",
            "id",
            "local_closed",
            "no_body",
            "open",
            "owner",
            "pending",
            "pending_end",
            "pending_trailers",
            "recv_window",
            "remote_closed",
            "returnable",
            "send_window",
        )
    # Consumed, but not yet announced to the sender.
    returnable: cython.longlong
    # Octets of content-length still to come, -1 when unknown.
    expected: cython.longlong
    head_done: cython.bint
    pending_end: cython.bint
    blocked_since: cython.double

    def __init__(
        self,
        stream_id: cython.longlong,
        owner: Any,
        send_window: cython.longlong,
        recv_window: cython.longlong,
    ) -> None:
        self.id = stream_id
        self.owner = owner
        self.send_window = send_window
        self.recv_window = recv_window
        self.local_closed = False
        self.remote_closed = False
        self.open = True
        self.no_body = False
        self.held = 0
        self.returnable = 0
        self.expected = -1
        self.head_done = False
        self.pending = None
        self.pending_end = False
        self.pending_trailers = None
        self.blocked_since = 0.0
        self.detail = ""

    def __repr__(self) -> str:
        return (
            f"<Stream {self.id} local_closed={bool(self.local_closed)} "
            f"remote_closed={bool(self.remote_closed)} send={self.send_window} "
            f"recv={self.recv_window} held={self.held}>"
        )


@cython.final
@cython.cclass
class Connection:
    """Both roles of RFC 9113; ``client`` tells which. See the module for how it is used.

    ``handler`` must have ``on_request(stream, head)`` and ``on_bad_request(stream, kind, detail)``
    (server), ``on_ready()`` (client: the peer's SETTINGS came or changed), ``on_goaway(code,
    detail)``, ``on_idle()`` (the last stream went), ``on_fault(code, detail)`` (the connection is
    broken: flush and close) and ``count(name)`` for limits that were hit.
    """

    if cython.compiled:
        client: bool = cython.declare(cython.bint, visibility="readonly")
        out: bytearray = cython.declare(bytearray, visibility="readonly")
        streams: dict[int, Stream] = cython.declare(dict, visibility="readonly")
        peer_max_streams: int = cython.declare(cython.longlong, visibility="readonly")
        settled: bool = cython.declare(cython.bint, visibility="readonly")
        broken: bool = cython.declare(cython.bint, visibility="readonly")
        going_away: bool = cython.declare(cython.bint, visibility="readonly")
        send_window: int = cython.declare(cython.longlong, visibility="readonly")
        recv_window: int = cython.declare(cython.longlong, visibility="readonly")
        deadline: float = cython.declare(cython.double, visibility="public")
        keepalive_interval_s: float = cython.declare(cython.double, visibility="public")
        keepalive_timeout_s: float = cython.declare(cython.double, visibility="public")
        dirty: bool = cython.declare(cython.bint, visibility="public")
        held: int = cython.declare(cython.longlong, visibility="readonly")
        last_received: float = cython.declare(cython.double, visibility="readonly")
        peer_max_list_size: int = cython.declare(cython.longlong, visibility="readonly")
        out_mark: int = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _handler: Any = cython.declare(object)
    _limits: Http2 = cython.declare(object)
    _budget: HeldOctets = cython.declare(object)
    _flush_list: list[Any] = cython.declare(list)
    _token: Any = cython.declare(object)
    _decoder: Decoder = cython.declare(object)
    _encoder: Encoder = cython.declare(object)
    _flow: BandwidthDelay = cython.declare(object)
    _floods: FloodGuard = cython.declare(object)
    _rest: bytes
    _preface_left: cython.bint
    _first_frame: cython.bint
    _now: cython.double
    # The frame whose payload is being handed on piece by piece, and its stream (None: discarded).
    _data_stream: Stream
    _data_left: cython.Py_ssize_t
    _pad_left: cython.Py_ssize_t
    _in_data: cython.bint
    _data_end: cython.bint
    # A field section that waits for its CONTINUATION frames.
    _section_id: cython.longlong
    _section: bytearray
    _section_flags: cython.int
    _section_frames: cython.int
    _last_peer_id: cython.longlong
    _next_id: cython.longlong
    _goaway_sent: cython.longlong
    _max_frame: cython.longlong
    _peer_max_frame: cython.longlong
    _peer_window: cython.longlong
    _stream_window: cython.longlong
    _connection_window: cython.longlong
    _returnable: cython.longlong
    # DATA frames sent, and what the peer may send on their account without being a flood.
    _data_frames: cython.longlong
    _updates: cython.longlong
    _pinged: cython.longlong
    _blocked: dict[int, Stream] = cython.declare(dict)
    _reset_ids: dict[int, None] = cython.declare(dict)
    _reset_order: deque[int] = cython.declare(object)
    _settings_sent: deque[float] = cython.declare(object)
    _header_at: cython.double
    _preface_at: cython.double
    _ping_at: cython.double
    _pong_at: cython.double
    _drain_at: cython.double
    _silent_pings: cython.int
    _draining: cython.bint

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
        self.client = client
        self.out = bytearray()
        self.streams = {}
        self.peer_max_streams = 100 if client else 0
        self.peer_max_list_size = _MAX_WINDOW
        self.settled = False
        self.broken = False
        self.going_away = False
        self.dirty = False
        self.held = 0
        self.send_window = frames.DEFAULT_WINDOW
        self.deadline = NEVER
        self.keepalive_interval_s = NEVER
        self.keepalive_timeout_s = 1.0
        self.last_received = now
        self._handler = handler
        self._limits = limits
        self._budget = budget
        self._flush_list = flush_list
        self._token = token
        self._decoder = Decoder(
            limits.header_table_size, limits.max_header_list_size, limits.max_fields
        )
        self._encoder = Encoder(limits.header_table_size)
        self._stream_window = limits.initial_stream_window
        self._connection_window = max(limits.initial_connection_window, frames.DEFAULT_WINDOW)
        self._flow = BandwidthDelay(
            limits.initial_stream_window,
            max(limits.initial_stream_window, limits.max_stream_window),
        )
        self._floods = FloodGuard(limits, now)
        self._rest = b""
        self._preface_left = not client
        self._first_frame = True
        self._now = now
        self._data_stream = None  # type: ignore[assignment]
        self._data_left = 0
        self._pad_left = 0
        self._in_data = False
        self._data_end = False
        self._section_id = 0
        self._section = bytearray()
        self._section_flags = 0
        self._section_frames = 0
        self._last_peer_id = 0
        self._next_id = 1
        self._goaway_sent = -1
        self._max_frame = limits.max_frame_size
        self._peer_max_frame = frames.DEFAULT_MAX_FRAME_SIZE
        self._peer_window = frames.DEFAULT_WINDOW
        self._returnable = 0
        self.out_mark = limits.max_connection_buffer
        self._data_frames = 0
        self._updates = 0
        self._pinged = -1
        self._blocked = {}
        self._reset_ids = {}
        self._reset_order = deque()
        self._settings_sent = deque()
        self._header_at = NEVER
        self._preface_at = NEVER
        self._ping_at = NEVER
        self._pong_at = NEVER
        self._drain_at = NEVER
        self._silent_pings = 0
        self._draining = False
        self.recv_window = self._connection_window
        self._start(now)

    @cython.cfunc
    def _start(self, now: cython.double) -> None:
        limits: Any = self._limits
        settings = {
            Setting.HEADER_TABLE_SIZE: limits.header_table_size,
            Setting.INITIAL_WINDOW_SIZE: limits.initial_stream_window,
            Setting.MAX_FRAME_SIZE: limits.max_frame_size,
            Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_size,
            Setting.NO_RFC7540_PRIORITIES: 1,
        }
        if self.client:
            settings[Setting.ENABLE_PUSH] = 0
            self.out += frames.PREFACE
        else:
            settings[Setting.MAX_CONCURRENT_STREAMS] = limits.max_concurrent_streams
            self._preface_at = now + limits.preface_timeout_s
        self._send_settings(settings)
        if self._connection_window > frames.DEFAULT_WINDOW:
            self.out += frames.window_update_frame(
                0, self._connection_window - frames.DEFAULT_WINDOW
            )
        self._touch()
        self._schedule()

    @property
    def last_stream_id(self) -> int:
        """The highest stream identifier that the peer opened."""
        return self._last_peer_id

    @property
    def stream_window(self) -> int:
        """The receive window of a stream, in octets, as it has grown so far."""
        return self._stream_window

    @property
    def draining(self) -> bool:
        """Whether no new stream is to be opened: a GOAWAY was sent or received."""
        return bool(self._draining or self.going_away)

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
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
            self._walk(data)
        except ConnectionFault as fault:
            self._break(fault.code, fault.detail, fault.counter)

    @cython.cfunc
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
            stream_id = (
                ((data[i + 5] & 0x7F) << 24)
                | (data[i + 6] << 16)
                | (data[i + 7] << 8)
                | data[i + 8]
            )
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

    @cython.cfunc
    def _flood(self, kind: cython.int) -> None:
        if self._floods.exceeded(kind, self._now):
            name = COUNTER_OF[kind]
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"too many frames: {name} (10.5)", name
            )

    # DATA, section 6.1

    @cython.cfunc
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
        self._silent_pings = 0
        if self._flow.sampling:
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
        self._data_stream = stream  # type: ignore[assignment]
        self._data_left = length - padding
        self._pad_left = padding - 1 if padding else 0
        self._data_end = (flags & _END_STREAM) != 0

    @cython.cfunc
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
            if self.client:
                stream.owner.response_data(piece, end)
            else:
                stream.owner.request_data(piece, end)
            if end and stream.open and stream.local_closed:
                self._remove(stream, ENDED, 0)
        return i + take + skip

    # HEADERS and CONTINUATION, sections 6.2 and 6.10

    @cython.cfunc
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
                dependency = (
                    ((data[i] & 0x7F) << 24)
                    | (data[i + 1] << 16)
                    | (data[i + 2] << 8)
                    | data[i + 3]
                )
                if dependency == stream_id:
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

    @cython.cfunc
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
        if len(self._section) > self._limits.max_header_block:
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

    @cython.cfunc
    def _section_done(self, data: bytes, stream_id: cython.longlong, flags: cython.int) -> None:
        stream: Stream | None
        if len(data) > self._limits.max_header_block:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                "a field section above http2.max_header_block",
                "header_block_too_large",
            )
        try:
            block = self._decoder.decode(data)
        except HpackError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, str(error), "hpack_error") from error
        self._silent_pings = 0
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

    @cython.cfunc
    def _request(self, stream_id: cython.longlong, block: Any, flags: cython.int) -> None:
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
        if len(self.streams) >= self._limits.max_concurrent_streams:
            self._handler.count("concurrent_streams_exceeded")
            self._rst(stream_id, ErrorCode.REFUSED_STREAM)
            self._flood(Flood.RESETS)
            return
        stream = Stream(stream_id, None, self._peer_window, self._stream_window)
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
                head = block.memo = parse_request(block.fields)
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

    @cython.cfunc
    def _bad_request(self, stream: Stream, detail: str) -> None:
        """A malformed request (8.1.1): a response that tells, then the stream error."""
        self._handler.count("protocol_error")
        self._handler.on_bad_request(stream, "malformed_request", detail)
        if stream.open:
            self._remove(stream, -1, 0)
        self._rst(stream.id, ErrorCode.PROTOCOL_ERROR)
        self._flood(Flood.INDUCED_RESETS)

    @cython.cfunc
    def _response(self, stream: Stream, block: Any, flags: cython.int) -> None:
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
        status: cython.int = head.status
        if status < 200:
            if end or status == 101:
                self._violate(
                    stream, ErrorCode.PROTOCOL_ERROR, f"malformed response: status {status} (8.1)"
                )
                return
            stream.owner.response_informational(head)
            return
        stream.head_done = True
        if not (stream.no_body or status == 204 or status == 304):
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
        stream.owner.response_head(head, end)
        if end and stream.open and stream.local_closed:
            self._remove(stream, ENDED, 0)

    @cython.cfunc
    def _trailers(self, stream: Stream, block: Any, flags: cython.int) -> None:
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
        if self.client:
            stream.owner.response_trailers(block.fields)
        else:
            stream.owner.request_trailers(block.fields)
        if stream.open and stream.local_closed:
            self._remove(stream, ENDED, 0)

    # The other frames, sections 6.3 to 6.9

    @cython.cfunc
    def _priority_frame(
        self, length: cython.Py_ssize_t, payload: bytes, stream_id: cython.longlong
    ) -> None:
        if stream_id == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0 (6.3)")
        self._flood(Flood.IGNORED)
        if length != 5:
            self._stream_fault(stream_id, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is 5 octets (6.3)")
        elif int.from_bytes(payload[:4], "big") & 0x7FFFFFFF == stream_id:
            self._stream_fault(
                stream_id, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself"
            )

    @cython.cfunc
    def _rst_stream_frame(self, payload: bytes, stream_id: cython.longlong) -> None:
        stream: Stream | None
        if stream_id == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on stream 0 (6.4)")
        if len(payload) != 4:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is 4 octets (6.4)", "frame_size_error"
            )
        if self._is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream (6.4)")
        if not self.client:
            self._flood(Flood.RESETS)
        stream = self.streams.get(stream_id)
        if stream is not None:
            code = int.from_bytes(payload, "big")
            why = REFUSED if code == ErrorCode.REFUSED_STREAM else RESET
            self._remove(stream, why, code)

    @cython.cfunc
    def _settings_frame(
        self, payload: bytes, stream_id: cython.longlong, flags: cython.int
    ) -> None:
        if stream_id != 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream (6.5)")
        if flags & _ACK:
            if payload:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR,
                    "SETTINGS ACK with payload (6.5)",
                    "frame_size_error",
                )
            if self._settings_sent:
                self._settings_sent.popleft()
            return
        if len(payload) % 6:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR,
                "SETTINGS of wrong length (6.5)",
                "frame_size_error",
            )
        self._flood(Flood.SETTINGS)
        for i in range(0, len(payload), 6):
            self._setting(
                int.from_bytes(payload[i : i + 2], "big"),
                int.from_bytes(payload[i + 2 : i + 6], "big"),
            )
        self.out += frames.SETTINGS_ACK
        self._touch()
        if self.client:
            if not self.settled:
                self.settled = True
                # Without the setting there is no limit (6.5.2).
                if self.peer_max_streams == 100 and not self._has_setting(payload, 3):
                    self.peer_max_streams = _MAX_WINDOW
            self._handler.on_ready()

    @cython.cfunc
    def _has_setting(self, payload: bytes, key: cython.int) -> cython.bint:
        return key.to_bytes(2, "big") in [payload[i : i + 2] for i in range(0, len(payload), 6)]

    @cython.cfunc
    def _setting(self, key: cython.longlong, value: cython.longlong) -> None:
        delta: cython.longlong
        stream: Stream
        if key == 0x1:
            self._encoder.set_peer_table_size(value)
        elif key == 0x2:
            if value > 1 or (value == 1 and self.client):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH (6.5.2)")
        elif key == 0x3:
            self.peer_max_streams = value
        elif key == 0x4:
            if value > _MAX_WINDOW:
                raise ConnectionFault(
                    ErrorCode.FLOW_CONTROL_ERROR,
                    "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1 (6.5.2)",
                    "flow_control_error",
                )
            delta = value - self._peer_window
            self._peer_window = value
            for stream in self.streams.values():
                stream.send_window += delta
                if stream.send_window > _MAX_WINDOW:
                    raise ConnectionFault(
                        ErrorCode.FLOW_CONTROL_ERROR,
                        "SETTINGS_INITIAL_WINDOW_SIZE overflows a window (6.9.2)",
                        "flow_control_error",
                    )
            if delta > 0:
                self.pump()
        elif key == 0x5:
            if value < 16384 or value > 16777215:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE (6.5.2)")
            self._peer_max_frame = value
        elif key == 0x6:
            self.peer_max_list_size = value
        elif (key == 0x8 or key == 0x9) and value > 1:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"setting {key} is neither 0 nor 1 (RFC 8441, 9218)"
            )

    @cython.cfunc
    def _ping_frame(self, payload: bytes, stream_id: cython.longlong, flags: cython.int) -> None:
        if stream_id != 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PING on a stream (6.7)")
        if len(payload) != 8:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR, "PING is 8 octets (6.7)", "frame_size_error"
            )
        if not flags & _ACK:
            # A peer that measures its path pings once per round trip in which we sent DATA.
            if self._pinged == self._data_frames:
                self._flood(Flood.PINGS)
            self._pinged = self._data_frames
            self.out += frames.ping_frame(payload, ack=True)
            self._touch()
        elif payload == KEEPALIVE_PING:
            self._pong_at = NEVER
        elif payload == BDP_PING:
            window = self._flow.finish(self._now)
            if window:
                self._grow(window)
        elif payload == DRAIN_PING and self._draining:
            self._last_goaway()

    @cython.cfunc
    def _goaway_frame(self, payload: bytes, stream_id: cython.longlong) -> None:
        stream: Stream
        last: cython.longlong
        if stream_id != 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream (6.8)")
        if len(payload) < 8:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is at least 8 octets (6.8)", "frame_size_error"
            )
        last = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        code = int.from_bytes(payload[4:8], "big")
        detail = payload[8:136].decode("ascii", "replace")
        self.going_away = True
        self._handler.on_goaway(code, detail)
        if self.client:
            for stream in [s for s in self.streams.values() if s.id > last]:
                if stream.open:
                    self._remove(stream, REFUSED, code)

    @cython.cfunc
    @cython.boundscheck(False)
    @cython.wraparound(False)
    def _window_update_frame(
        self,
        data: bytes,
        i: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
        stream_id: cython.longlong,
    ) -> None:
        stream: Stream | None
        increment: cython.longlong
        if length != 4:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is 4 octets (6.9)", "frame_size_error"
            )
        increment = _uint31(data, i)
        # For each DATA frame of ours a peer may give back both windows; only the rest can flood.
        if self._updates < 2 * self._data_frames:
            self._updates += 1
        else:
            self._flood(Flood.WINDOW_UPDATES)
        if stream_id == 0:
            if increment == 0:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 (6.9)")
            self.send_window += increment
            if self.send_window > _MAX_WINDOW:
                raise ConnectionFault(
                    ErrorCode.FLOW_CONTROL_ERROR,
                    "the connection's window above 2^31-1 (6.9.1)",
                    "flow_control_error",
                )
            if self._blocked:
                self.pump()
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            if self._is_idle(stream_id):
                raise ConnectionFault(
                    ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream (5.1)"
                )
            if increment == 0 and not self.client:
                self._stream_fault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 (6.9)")
            return
        if increment == 0:
            self._violate(stream, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 (6.9)")
            return
        stream.send_window += increment
        if stream.send_window > _MAX_WINDOW:
            self._handler.count("flow_control_error")
            self._violate(
                stream, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window above 2^31-1 (6.9.1)"
            )
            return
        if stream.pending is not None:
            self._pump_stream(stream, _MAX_WINDOW)

    # -- states ------------------------------------------------------------------------------

    @cython.cfunc
    def _is_idle(self, stream_id: cython.longlong) -> cython.bint:
        if self.client:
            return stream_id >= self._next_id or not stream_id & 1
        return stream_id > self._last_peer_id or not stream_id & 1

    @cython.cfunc
    def _ignored(self, stream_id: cython.longlong) -> cython.bint:
        """Streams that came after our GOAWAY: their frames are let pass (6.8)."""
        return self._goaway_sent >= 0 and stream_id > self._goaway_sent

    @cython.cfunc
    def _remove(self, stream: Stream, why: cython.int, code: cython.longlong) -> None:
        """Forget the stream; its owner is told unless ``why`` is negative."""
        if not stream.open:
            return
        stream.open = False
        self.streams.pop(stream.id, None)
        if stream.held:
            self.held -= stream.held
            stream.held = 0
            self._return_credit(0)
        if stream.pending is not None:
            self._budget.total -= len(stream.pending)
            stream.pending = None
            self._blocked.pop(stream.id, None)
        if why >= 0 and stream.owner is not None:
            if self.client:
                stream.owner.response_closed(why, code)
            else:
                stream.owner.request_closed(why, code)
        if not self.streams:
            self._handler.on_idle()

    @cython.cfunc
    def _rst(self, stream_id: cython.longlong, code: cython.int) -> None:
        """Write RST_STREAM and remember the stream as one that we reset."""
        self.out += frames.rst_stream_frame(stream_id, code)
        self._touch()
        if stream_id not in self._reset_ids:
            self._reset_ids[stream_id] = None
            self._reset_order.append(stream_id)
            if len(self._reset_order) > self._limits.max_closed_streams:
                del self._reset_ids[self._reset_order.popleft()]

    @cython.cfunc
    def _violate(self, stream: Stream, code: cython.int, detail: str) -> None:
        """A stream error (5.4.2)."""
        self._handler.count("protocol_error")
        stream.detail = detail
        self._remove(stream, VIOLATION, code)
        self._rst(stream.id, code)
        if not self.client:
            self._flood(Flood.INDUCED_RESETS)

    @cython.cfunc
    def _stream_fault(self, stream_id: cython.longlong, code: cython.int, detail: str) -> None:
        """A stream error on a stream that may not exist."""
        stream: Stream | None = self.streams.get(stream_id)
        if stream is not None:
            self._violate(stream, code, detail)
        else:
            self._rst(stream_id, code)
            if not self.client:
                self._flood(Flood.INDUCED_RESETS)

    @cython.cfunc
    def _break(self, code: cython.int, detail: str, counter: str) -> None:
        """A connection error (5.4.1): GOAWAY, and every stream is lost."""
        if self.broken:
            return
        self.broken = True
        self._handler.count(counter)
        self.out += frames.goaway_frame(self._last_peer_id, code, detail.encode("ascii", "replace"))
        self._touch()
        self._lose_streams(detail)
        self._handler.on_fault(code, detail)

    @cython.cfunc
    def _lose_streams(self, detail: str) -> None:
        stream: Stream
        for stream in list(self.streams.values()):
            if stream.open:
                stream.detail = detail
                self._remove(stream, LOST, 0)

    def lost(self, detail: str) -> None:
        """The transport is gone: every stream is lost. Nothing can be sent any more."""
        self.broken = True
        self._lose_streams(detail)

    def abort(self, code: int, detail: str, counter: str) -> None:
        """Break the connection for a reason found outside of it (a timeout, a limit)."""
        self._break(code, detail, counter)

    # -- receive windows ---------------------------------------------------------------------

    def consume(self, stream: Stream, octets: cython.longlong) -> None:
        """``octets`` of the stream's DATA have moved on: its sender may send as many again."""
        if not stream.open:
            return
        stream.held -= octets
        self.held -= octets
        if not stream.remote_closed:
            stream.returnable += octets
            if stream.returnable * 2 >= self._stream_window:
                self.out += frames.window_update_frame(stream.id, stream.returnable)
                stream.recv_window += stream.returnable
                stream.returnable = 0
                self._touch()
                if self._flow.start(self._now):
                    self.out += frames.ping_frame(BDP_PING)
        if self._returnable * 2 >= self._connection_window:
            self._return_credit(0)

    @cython.cfunc
    def _return_credit(self, octets: cython.longlong) -> None:
        self._returnable += octets
        if self._returnable * 2 < self._connection_window:
            return
        if not self.client and self.held > self._limits.max_connection_window:
            return
        self.out += frames.window_update_frame(0, self._returnable)
        self.recv_window += self._returnable
        self._returnable = 0
        self._touch()

    @cython.cfunc
    def _grow(self, window: cython.longlong) -> None:
        """Set the stream window, and with it the connection's, to what was measured."""
        stream: Stream
        delta: cython.longlong = window - self._stream_window
        self._stream_window = window
        self._send_settings({Setting.INITIAL_WINDOW_SIZE: window})
        for stream in self.streams.values():
            stream.recv_window += delta
        wanted: cython.longlong = min(2 * window, self._limits.max_connection_window)
        if wanted > self._connection_window:
            self._returnable += wanted - self._connection_window
            self._connection_window = wanted
            self._return_credit(0)
        self._touch()

    # -- sending -----------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    def _touch(self) -> None:
        if not self.dirty:
            self.dirty = True
            self._flush_list.append(self._token)

    @cython.cfunc
    def _send_settings(self, settings: dict) -> None:  # type: ignore[type-arg]
        self.out += frames.settings_frame(settings)
        self._settings_sent.append(self._now + self._limits.settings_timeout_s)
        self._schedule()

    @cython.cfunc
    def _write_section(
        self, stream_id: cython.longlong, block: bytes, end_stream: cython.bint
    ) -> None:
        n: cython.Py_ssize_t = len(block)
        flags: cython.int = _END_STREAM if end_stream else 0
        most: cython.Py_ssize_t = self._peer_max_frame
        if n <= most:
            self.out += frame_header(n, _HEADERS, flags | _END_HEADERS, stream_id)
            self.out += block
        else:
            self.out += frame_header(most, _HEADERS, flags, stream_id)
            self.out += block[:most]
            i: cython.Py_ssize_t = most
            while i < n:
                size: cython.Py_ssize_t = min(most, n - i)
                last = _END_HEADERS if i + size == n else 0
                self.out += frame_header(size, _CONTINUATION, last, stream_id)
                self.out += block[i : i + size]
                i += size
        self._touch()

    def open_stream(
        self,
        owner: Any,
        fields: Fields,
        extra: bytes,
        end_stream: cython.bint,
        no_body: cython.bint,
    ) -> Stream:
        """Send a request head on a new stream (client).

        ``fields`` begin with the pseudo-fields; the encoding is remembered for the same tuple
        object. ``extra`` is encoded already (:func:`gateway.wire.hpack.encode_literal`).
        ``no_body`` says that the response has none whatever its content-length (HEAD). The caller
        has checked that a stream may be opened.
        """
        stream: Stream = Stream(self._next_id, owner, self._peer_window, self._stream_window)
        stream.no_body = no_body
        self._next_id += 2
        if not self.streams:
            self._busy()
        self.streams[stream.id] = stream
        self._write_section(stream.id, self._encoder.encode(fields) + extra, end_stream)
        if end_stream:
            stream.local_closed = True
        return stream

    @property
    def exhausted(self) -> bool:
        """Whether the stream identifiers of this connection are used up (5.1.1)."""
        return self._next_id > frames.MAX_STREAM_ID

    def send_head(
        self, stream: Stream, fields: Fields, extra: bytes, end_stream: cython.bint
    ) -> None:
        """Send a response head, an informational one included (server)."""
        if not stream.open:
            return
        self._write_section(stream.id, self._encoder.encode(fields) + extra, end_stream)
        if end_stream:
            self._finish(stream)

    @cython.cfunc
    def _finish(self, stream: Stream) -> None:
        """We sent END_STREAM."""
        stream.local_closed = True
        if stream.remote_closed:
            self._remove(stream, ENDED, 0)

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
                self.out += frame_header(n, _DATA, _END_STREAM if end_stream else 0, stream.id)
                self.out += data
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
            stream.blocked_since = self._now
            self._blocked[stream.id] = stream
            self._schedule()
        if end_stream:
            stream.pending_end = True
        if not n and len(stream.pending):
            return 0
        stream.pending += data
        self._budget.total += n
        moved: cython.Py_ssize_t = self._move(stream, _MAX_WINDOW)
        if stream.open and stream.pending is not None and self._budget.total > self._budget.limit:
            self._overflow(stream)
        return moved

    @cython.cfunc
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

    @cython.cfunc
    def _move(self, stream: Stream, most: cython.longlong) -> cython.Py_ssize_t:
        """Send up to ``most`` octets of what waits in the stream; how many went."""
        pending = stream.pending
        moved: cython.Py_ssize_t = 0
        room: cython.longlong
        size: cython.longlong
        left: cython.longlong = len(pending)  # type: ignore[arg-type]
        end: cython.bint
        while left > 0 and len(self.out) < self.out_mark:
            room = min(stream.send_window, self.send_window, self._peer_max_frame, most - moved)
            if room <= 0:
                break
            size = min(left, room)
            left -= size
            end = left == 0 and stream.pending_end and stream.pending_trailers is None
            self.out += frame_header(size, _DATA, _END_STREAM if end else 0, stream.id)
            self.out += pending[moved : moved + size]  # type: ignore[index]
            stream.send_window -= size
            self.send_window -= size
            self._data_frames += 1
            moved += size
        if moved:
            del pending[:moved]  # type: ignore[union-attr]
            self._budget.total -= moved
            stream.blocked_since = self._now
            self._touch()
        if left == 0:
            stream.pending = None
            self._blocked.pop(stream.id, None)
            if stream.pending_trailers is not None:
                trailers: Any = stream.pending_trailers
                stream.pending_trailers = None
                self._write_section(stream.id, self._encoder.encode(trailers), True)
                self._finish(stream)
            elif stream.pending_end:
                if moved == 0:
                    self.out += frame_header(0, _DATA, _END_STREAM, stream.id)
                    self._touch()
                self._finish(stream)
        return moved

    @cython.cfunc
    def _pump_stream(self, stream: Stream, most: cython.longlong) -> cython.Py_ssize_t:
        owner: Any = stream.owner
        moved: cython.Py_ssize_t = self._move(stream, most)
        if moved and owner is not None:
            if self.client:
                owner.request_drained(moved)
            else:
                owner.response_drained(moved)
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

    def flushed(self, now: float) -> None:
        """Some of ``out`` was written to the transport at ``now``."""
        self._now = now
        if self._blocked and len(self.out) * 2 < self.out_mark:
            self.pump()

    def reset(self, stream: Stream, code: int) -> None:
        """Reset a stream. Its owner asks for it, so its owner is not told."""
        if not stream.open:
            return
        self._remove(stream, -1, 0)
        self._rst(stream.id, code)

    def go_away(self, now: float) -> None:
        """Begin a graceful end (6.8): announce it, then after a round trip say which was last."""
        if self._draining or self.broken:
            return
        self._now = now
        self._draining = True
        if self.client:
            self.out += frames.goaway_frame(0, ErrorCode.NO_ERROR)
        else:
            self.out += frames.goaway_frame(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR)
            self.out += frames.ping_frame(DRAIN_PING)
            self._drain_at = now + 1.0
            self._schedule()
        self._touch()

    @cython.cfunc
    def _last_goaway(self) -> None:
        self._drain_at = NEVER
        if self._goaway_sent < 0:
            self._goaway_sent = self._last_peer_id
            self.out += frames.goaway_frame(self._last_peer_id, ErrorCode.NO_ERROR)
            self._touch()
            if not self.streams:
                self._handler.on_idle()

    @property
    def finished(self) -> bool:
        """Whether a graceful end is complete: announced, and no stream is left."""
        if self.streams or self.broken:
            return bool(self.broken)
        return bool(self._draining and (self.client or self._goaway_sent >= 0))

    # -- time --------------------------------------------------------------------------------

    @cython.cfunc
    def _busy(self) -> None:
        """The first stream opens: keepalive begins (client)."""
        if self.keepalive_interval_s != NEVER:
            self._silent_pings = 0
            self._ping_at = self._now + self.keepalive_interval_s
            if self._ping_at < self.deadline:
                self.deadline = self._ping_at

    @cython.cfunc
    def _schedule(self) -> None:
        """Find the earliest moment at which :meth:`check` has something to do."""
        if self.broken:
            self.deadline = NEVER
            return
        at: cython.double = self._preface_at
        if self._header_at < at:
            at = self._header_at
        if self._ping_at < at:
            at = self._ping_at
        if self._pong_at < at:
            at = self._pong_at
        if self._drain_at < at:
            at = self._drain_at
        if self._settings_sent and self._settings_sent[0] < at:
            at = self._settings_sent[0]
        if self._blocked and self._limits.stall_timeout_s is not None:
            stalled: cython.double = self._now + self._limits.stall_timeout_s / 4
            if stalled < at:
                at = stalled
        self.deadline = at

    def check(self, now: float) -> None:
        """Act on what is overdue at ``now``, and set ``deadline`` anew."""
        if self.broken:
            self.deadline = NEVER
            return
        self._now = now
        if now >= self._preface_at:
            self._break(
                ErrorCode.PROTOCOL_ERROR,
                "no preface within http2.preface_timeout",
                "preface_timeout",
            )
        elif now >= self._header_at:
            self._break(
                ErrorCode.ENHANCE_YOUR_CALM,
                "a frame or field section not whole within http2.header_timeout",
                "header_timeout",
            )
        elif self._settings_sent and now >= self._settings_sent[0]:
            self._break(
                ErrorCode.SETTINGS_TIMEOUT,
                "SETTINGS not acknowledged within http2.settings_timeout (6.5.3)",
                "settings_timeout",
            )
        elif now >= self._pong_at:
            self._break(ErrorCode.NO_ERROR, "keepalive PING not answered", "keepalive_timeout")
        else:
            if now >= self._drain_at:
                self._last_goaway()
            if now >= self._ping_at:
                self._keep_alive(now)
            if self._blocked:
                self._check_stalls(now)
        self._schedule()

    @cython.cfunc
    def _keep_alive(self, now: cython.double) -> None:
        if not self.streams:
            self._ping_at = NEVER
            return
        due: cython.double = self.last_received + self.keepalive_interval_s
        if self._silent_pings >= _SILENT_PINGS:
            due = self.last_received + max(self.keepalive_interval_s, _SILENT_PING_INTERVAL_S)
        if now < due:
            self._ping_at = due
            return
        self._silent_pings += 1
        self.out += frames.ping_frame(KEEPALIVE_PING)
        self._touch()
        self._pong_at = now + self.keepalive_timeout_s
        self._ping_at = now + self.keepalive_interval_s

    @cython.cfunc
    def _check_stalls(self, now: cython.double) -> None:
        stream: Stream
        if self._limits.stall_timeout_s is None:
            return
        oldest: cython.double = now - self._limits.stall_timeout_s
        for stream in list(self._blocked.values()):
            if stream.blocked_since <= oldest and stream.open:
                self._handler.count("stalled_stream")
                stream.detail = "no window from the peer within http2.stall_timeout"
                self._remove(stream, STALLED, ErrorCode.CANCEL)
                self._rst(stream.id, ErrorCode.CANCEL)

    def __repr__(self) -> str:
        role = "client" if self.client else "server"
        return f"<Connection {role} streams={len(self.streams)} out={len(self.out)}>"


__all__ = [
    "ENDED",
    "LOST",
    "OVERFLOW",
    "REFUSED",
    "RESET",
    "STALLED",
    "VIOLATION",
    "Connection",
    "HeaderBlock",
    "HeldOctets",
    "RequestHead",
    "ResponseHead",
    "Stream",
]

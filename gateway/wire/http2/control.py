"""The connection as a whole: its settings, windows, resets, end, and what has to happen in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython

from gateway.config import Http2
from gateway.wire import frames
from gateway.wire.codec import (
    LOST,
    NEVER,
    REFUSED,
    RESET,
    STALLED,
    VIOLATION,
    HeldOctets,
    Stream,
)
from gateway.wire.flood import COUNTER_OF, Flood, FloodGuard
from gateway.wire.flow import BDP_PING, BandwidthDelay
from gateway.wire.frames import ErrorCode, Setting, uint31
from gateway.wire.hpack import Decoder
from gateway.wire.http2.fault import ConnectionFault
from gateway.wire.http2.sending import Sender

KEEPALIVE_PING: Final = b"gw-alive"
DRAIN_PING: Final = b"gw-drain"

MAX_SETTINGS: Final = 32
"""Settings in one frame; ten are defined, and each costs a walk over the streams."""

# Pings without a HEADERS or DATA frame from the server in between that grpc servers take before
# they close the connection with too_many_pings, and the interval that they always allow
# (gRFC A8; GRPC_ARG_HTTP2_MAX_PING_STRIKES 2, ..._MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS 300 s).
_SILENT_PINGS: int = cython.declare(cython.int, 3)
_SILENT_PING_INTERVAL_S: float = cython.declare(cython.double, 301.0)

_MAX_WINDOW: int = cython.declare(cython.longlong, frames.MAX_WINDOW)
_ACK: int = cython.declare(cython.int, frames.FLAG_ACK)


class Control(Sender):
    """Handles the frames that concern the connection. Base of :class:`Connection`."""

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
        Sender.__init__(self, client, limits, handler, budget, flush_list, token, now)
        self.peer_max_streams = 100 if client else 0
        self.peer_max_list_size = _MAX_WINDOW
        self.settled = False
        self.going_away = False
        self.held = 0
        self.keepalive_interval_s = NEVER
        self.keepalive_timeout_s = 1.0
        self.last_received = now
        # The table size in force until our SETTINGS are acknowledged (RFC 7541 section 4.2).
        self._decoder = Decoder(4096, limits.max_header_list_size, limits.max_fields)
        self._connection_window = max(limits.initial_connection_window, frames.DEFAULT_WINDOW)
        self._flow = BandwidthDelay(
            limits.initial_stream_window,
            max(limits.initial_stream_window, limits.max_stream_window),
        )
        self._floods = FloodGuard(limits, now)
        self._max_streams = limits.max_concurrent_streams
        self._max_block = limits.max_header_block
        self._max_held = limits.max_connection_window
        # Whether the flow estimator is counting: asked for each DATA frame.
        self._sampling = False
        self._last_peer_id = 0
        self._goaway_sent = -1
        self._returnable = 0
        self._updates = 0
        self._pinged = -1
        self._settings_sent: list[float] = []
        self._header_at = NEVER
        self._preface_at = NEVER
        self._ping_at = NEVER
        self._pong_at = NEVER
        self._drain_at = NEVER
        self._busy_since = now
        self._silent_pings = 0
        self.recv_window = self._connection_window
        self._start(now)

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
            settings[Setting.ENABLE_CONNECT_PROTOCOL] = 1
        self._preface_at = now + limits.preface_timeout_s
        self._send_settings(settings)
        if self._connection_window > frames.DEFAULT_WINDOW:
            self.out += frames.window_update_frame(
                0, self._connection_window - frames.DEFAULT_WINDOW
            )
        self.touch()
        self._schedule()

    def _send_settings(self, settings: dict) -> None:  # type: ignore[type-arg]
        self.out += frames.settings_frame(settings)
        self._settings_sent.append(self._now + self._limits.settings_timeout_s)
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
        return bool(self.leaving or self.going_away)

    def _flood(self, kind: cython.int) -> None:
        if self._floods.exceeded(kind, self._now):
            name = COUNTER_OF[kind]
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"too many frames: {name} (10.5)", name
            )

    # -- frames, RFC 9113 sections 6.3 to 6.9 ------------------------------------------------

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
                self._settings_sent.pop(0)
                self._decoder.set_max_table_size(self._limits.header_table_size)
            else:
                self._flood(Flood.IGNORED)
            return
        if len(payload) % 6:
            raise ConnectionFault(
                ErrorCode.FRAME_SIZE_ERROR,
                "SETTINGS of wrong length (6.5)",
                "frame_size_error",
            )
        self._flood(Flood.SETTINGS)
        if len(payload) > 6 * MAX_SETTINGS:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"more than {MAX_SETTINGS} settings in a frame (10.5)",
                "settings_flood",
            )
        if self.client and not self.settled:
            # Until now a guess; without the setting there is no limit (6.5.2).
            self.peer_max_streams = _MAX_WINDOW
        for i in range(0, len(payload), 6):
            self._setting(
                int.from_bytes(payload[i : i + 2], "big"),
                int.from_bytes(payload[i + 2 : i + 6], "big"),
            )
        self.out += frames.SETTINGS_ACK
        self.touch()
        # Not before the acknowledgement: only after it the peer counts with what it allowed.
        if self._blocked:
            self.pump()
        if self.client:
            self.settled = True
            self._handler.on_ready()

    def _setting(self, key: cython.longlong, value: cython.longlong) -> None:
        delta: cython.longlong
        stream: Stream
        if key == Setting.HEADER_TABLE_SIZE:
            self._encoder.set_peer_table_size(value)
        elif key == Setting.ENABLE_PUSH:
            if value > 1 or (value == 1 and self.client):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH (6.5.2)")
        elif key == Setting.MAX_CONCURRENT_STREAMS:
            self.peer_max_streams = value
        elif key == Setting.INITIAL_WINDOW_SIZE:
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
        elif key == Setting.MAX_FRAME_SIZE:
            if not frames.DEFAULT_MAX_FRAME_SIZE <= value <= frames.LARGEST_MAX_FRAME_SIZE:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE (6.5.2)")
            self._peer_max_frame = value
        elif key == Setting.MAX_HEADER_LIST_SIZE:
            self.peer_max_list_size = value
        elif value > 1 and key in (
            Setting.ENABLE_CONNECT_PROTOCOL,
            Setting.NO_RFC7540_PRIORITIES,
        ):
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"setting {key} is neither 0 nor 1 (RFC 8441, 9218)"
            )

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
            self.touch()
        elif payload == KEEPALIVE_PING:
            self._pong_at = NEVER
        elif payload == BDP_PING:
            self._sampling = False
            window = self._flow.finish(self._now)
            if window:
                self._grow(window)
        elif payload == DRAIN_PING and self.leaving:
            self._last_goaway()
        else:
            self._flood(Flood.IGNORED)

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
        increment = uint31(data, i)
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

    # -- states and errors -------------------------------------------------------------------

    def _is_idle(self, stream_id: cython.longlong) -> cython.bint:
        if self.client:
            return stream_id >= self.next_id or not stream_id & 1
        return stream_id > self._last_peer_id or not stream_id & 1

    def _ignored(self, stream_id: cython.longlong) -> cython.bint:
        """Streams that came after our GOAWAY: their frames are let pass (6.8)."""
        return self._goaway_sent >= 0 and stream_id > self._goaway_sent

    def _violate(self, stream: Stream, code: cython.int, detail: str) -> None:
        """A stream error (5.4.2)."""
        self._handler.count("protocol_error")
        stream.detail = detail
        self._remove(stream, VIOLATION, code)
        self._induced_reset(stream.id, code)

    def _stream_fault(self, stream_id: cython.longlong, code: cython.int, detail: str) -> None:
        """A stream error on a stream that may not exist."""
        stream: Stream | None = self.streams.get(stream_id)
        if self._is_idle(stream_id):
            raise ConnectionFault(ErrorCode(code), detail)
        if stream is not None:
            self._violate(stream, code, detail)
        else:
            self._induced_reset(stream_id, code)

    def _induced_reset(self, stream_id: cython.longlong, code: cython.int) -> None:
        """Reset a stream for the peer's mistake; a client may make only so many (10.5)."""
        self._rst(stream_id, code)
        if not self.client:
            self._flood(Flood.INDUCED_RESETS)

    def _break(self, code: cython.int, detail: str, counter: str) -> None:
        """A connection error (5.4.1): GOAWAY, and every stream is lost."""
        if self.broken:
            return
        self.broken = True
        self._handler.count(counter)
        last = self._goaway_sent if self._goaway_sent >= 0 else self._last_peer_id
        self.out += frames.goaway_frame(last, code, detail.encode("ascii", "replace"))
        self.touch()
        self._lose_streams(detail)
        self._handler.on_fault(code, detail)

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

    def abort(self, code: cython.int, detail: str, counter: str) -> None:
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
                self.touch()
                if self._flow.start(self._now):
                    self._sampling = True
                    self.out += frames.ping_frame(BDP_PING)
        if self._returnable * 2 >= self._connection_window:
            self._return_credit(0)

    def _return_credit(self, octets: cython.longlong) -> None:
        self._returnable += octets
        if self.broken or self._returnable * 2 < self._connection_window:
            return
        if not self.client and self.held > self._max_held:
            return
        self.out += frames.window_update_frame(0, self._returnable)
        self.recv_window += self._returnable
        self._returnable = 0
        self.touch()

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
        self.touch()

    def _drop_held(self, stream: Stream) -> None:
        if stream.held:
            self.held -= stream.held
            stream.held = 0
            self._return_credit(0)

    # -- the end -----------------------------------------------------------------------------

    def go_away(self, now: cython.double) -> None:
        """Begin a graceful end (6.8): announce it, then after a round trip say which was last."""
        if self.leaving or self.broken:
            return
        self._now = now
        self.leaving = True
        if self.client:
            self.out += frames.goaway_frame(0, ErrorCode.NO_ERROR)
        else:
            self.out += frames.goaway_frame(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR)
            self.out += frames.ping_frame(DRAIN_PING)
            self._drain_at = now + 1.0
            self._schedule()
        self.touch()

    def _last_goaway(self) -> None:
        self._drain_at = NEVER
        if self._goaway_sent < 0:
            self._goaway_sent = self._last_peer_id
            self.out += frames.goaway_frame(self._last_peer_id, ErrorCode.NO_ERROR)
            self.touch()
            if not self.streams:
                self._handler.on_idle()

    def is_finished(self) -> cython.bint:
        """Whether a graceful end is complete: announced, and no stream is left."""
        if self.streams or self.broken:
            return self.broken
        return self.leaving and (self.client or self._goaway_sent >= 0)

    # -- time --------------------------------------------------------------------------------

    def _spoke(self) -> None:
        """HEADERS or DATA came after PINGs without any: keepalive may ping often again."""
        self._silent_pings = 0
        if self._ping_at != NEVER:
            self._ping_at = min(self._ping_at, self._now + self.keepalive_interval_s)
            self.deadline = min(self.deadline, self._ping_at)

    def _became_busy(self, now: cython.double) -> None:
        """The first stream was opened: keepalive begins (client)."""
        if self.keepalive_interval_s != NEVER:
            self._silent_pings = 0
            self._busy_since = now
            self._ping_at = now + self.keepalive_interval_s
            if self._ping_at < self.deadline:
                self.deadline = self._ping_at

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

    def check(self, now: cython.double) -> None:
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

    def _keep_alive(self, now: cython.double) -> None:
        if not self.streams:
            self._ping_at = NEVER
            return
        due: cython.double = self.keepalive_interval_s
        if self._silent_pings >= _SILENT_PINGS and due < _SILENT_PING_INTERVAL_S:
            due = _SILENT_PING_INTERVAL_S
        due += max(self.last_received, self._busy_since)
        if now < due:
            self._ping_at = due
            return
        self._silent_pings += 1
        self.out += frames.ping_frame(KEEPALIVE_PING)
        self.touch()
        self._pong_at = now + self.keepalive_timeout_s
        self._ping_at = now + self.keepalive_interval_s

    def _check_stalls(self, now: cython.double) -> None:
        stream: Stream
        if self._limits.stall_timeout_s is None:
            return
        oldest: cython.double = now - self._limits.stall_timeout_s
        for stream in list(self._blocked.values()):
            if stream.blocked_since == NEVER:
                stream.blocked_since = now
            elif stream.blocked_since <= oldest and stream.open:
                self._handler.count("stalled_stream")
                stream.detail = "no window from the peer within http2.stall_timeout"
                self._remove(stream, STALLED, ErrorCode.CANCEL)
                self._rst(stream.id, ErrorCode.CANCEL)

    def __repr__(self) -> str:
        role = "client" if self.client else "server"
        return f"<Connection {role} streams={len(self.streams)} out={len(self.out)}>"

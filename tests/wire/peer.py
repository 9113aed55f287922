"""Both ends of an HTTP/2 connection in memory.

:class:`Side` is our :class:`gateway.wire.http2.Connection` with a handler and owners that write
down what they are told. Its effects are compared as plain tuples: first what it told its handler
and owners, then the frames that it wrote. :func:`play` runs a script of such steps.
:class:`Library` is the ``h2`` library as the other end, and :func:`converse` moves octets between
the two until neither has more to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from struct import pack
from typing import Any

import h2.config
import h2.connection
import h2.events
import hpack

from gateway.config import Http2
from gateway.wire import frames as f
from gateway.wire.http2 import Connection, HeldOctets, Stream, StreamOwner

Fields = tuple[tuple[bytes, bytes], ...]
Effect = tuple[Any, ...]

GET: Fields = (
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":authority", b"a.test"),
    (b":path", b"/"),
)
POST: Fields = ((b":method", b"POST"), *GET[1:])
OK: Fields = ((b":status", b"200"),)

# ---------------------------------------------------------------------------- frames, by hand


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """Any frame, right or wrong."""
    return pack(">HBBBL", len(payload) >> 8, len(payload) & 255, kind, flags, stream_id) + payload


def _text(octets: bytes) -> bytes:
    assert len(octets) < 127 + 128
    if len(octets) < 127:
        return bytes((len(octets),)) + octets
    return bytes((127, len(octets) - 127)) + octets


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block of literals that leave the table alone."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def headers(stream_id: int, fields: Iterable[tuple[bytes, bytes]], *, end: bool = False) -> bytes:
    flags = f.FLAG_END_HEADERS | (f.FLAG_END_STREAM if end else 0)
    return frame(f.HEADERS, flags, stream_id, block(fields))


def data(stream_id: int, octets: bytes = b"", *, end: bool = False) -> bytes:
    return frame(f.DATA, f.FLAG_END_STREAM if end else 0, stream_id, octets)


def padded(octets: bytes, padding: int) -> bytes:
    """The payload of a padded frame."""
    return bytes((padding,)) + octets + bytes(padding)


def rst(stream_id: int, code: int = f.ErrorCode.CANCEL) -> bytes:
    return frame(f.RST_STREAM, 0, stream_id, pack(">L", code))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(f.WINDOW_UPDATE, 0, stream_id, pack(">L", increment))


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(f.SETTINGS, 0, 0, b"".join(pack(">HL", key, value) for key, value in pairs))


SETTINGS_ACK = frame(f.SETTINGS, f.FLAG_ACK)


def ping(payload: bytes = b"12345678", *, ack: bool = False) -> bytes:
    return frame(f.PING, f.FLAG_ACK if ack else 0, 0, payload)


def goaway(last: int, code: int = 0, debug: bytes = b"") -> bytes:
    return frame(f.GOAWAY, 0, 0, pack(">LL", last, code) + debug)


def raw_frames(octets: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each frame; they must be whole."""
    i = 0
    while i < len(octets):
        length = int.from_bytes(octets[i : i + 3], "big")
        assert i + 9 + length <= len(octets), "half a frame was written"
        stream_id = int.from_bytes(octets[i + 5 : i + 9], "big")
        yield octets[i + 3], octets[i + 4], stream_id, octets[i + 9 : i + 9 + length]
        i += 9 + length


# --------------------------------------------------------------------------------- our own end


class Owner(StreamOwner):
    """Owner of one stream: tells its :class:`Side` what it is told."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.stream: Any = None
        self.closed: list[tuple[int, int]] = []
        self.received = 0
        self.head: Any = None
        self.body = bytearray()
        self.ended = False

    def _tell(self, name: str, *what: object) -> None:
        assert self.stream is not None
        assert not self.closed or name == "drained", f"{name} after closed"
        self.side.tell(name, self.stream.id, *what)

    def _data(self, data: bytes, end: bool) -> None:
        assert type(data) is bytes
        self._tell("data", data, bool(end))
        self.received += len(data)
        self.body += data
        self.ended = self.ended or bool(end)
        if self.side.consuming:
            self.side.conn.consume(self.stream, len(data))

    def _trailers(self, fields: Fields) -> None:
        self.ended = True
        self._tell("trailers", fields)

    def _closed(self, why: int, code: int) -> None:
        self._tell("closed", why, code)
        self.closed.append((why, code))

    def _drained(self, octets: int) -> None:
        self._tell("drained", octets)

    request_data = response_data = _data
    request_trailers = response_trailers = _trailers
    request_closed = response_closed = _closed
    request_drained = response_drained = _drained

    def response_informational(self, head: Any) -> None:
        self._tell("informational", head.status)

    def response_head(self, head: Any, end: bool) -> None:
        self.head = head
        self.ended = self.ended or bool(end)
        self._tell("head", head.status, bool(end))


class Side:
    """Our end. ``consuming`` owners give their octets back at once."""

    def __init__(
        self,
        *,
        client: bool = False,
        ready: bool = True,
        consuming: bool = True,
        budget: HeldOctets | None = None,
        peer_settings: tuple[tuple[int, int], ...] = (),
        now: float = 0.0,
        **limits: Any,
    ) -> None:
        self.now = now
        self.events: list[Effect] = []
        self.owners: dict[int, Owner] = {}
        self.consuming = consuming
        self.answering: Fields | None = None
        self.budget = budget or HeldOctets(1 << 40)
        self.flush_list: list[object] = []
        self.limits = Http2(**limits)
        self.decoder = hpack.Decoder()
        self.conn = Connection(
            client, self.limits, self, self.budget, self.flush_list, "token", now
        )
        if ready:
            start = b"" if client else f.PREFACE
            self.feed(start + settings(*peer_settings) + SETTINGS_ACK)
            self.effects()

    # What the connection calls.

    def tell(self, *what: object) -> None:
        self.events.append(what)

    def on_request(self, stream: Stream, head: Any) -> None:
        owner = self._own(stream)
        owner.head = head
        owner.ended = bool(stream.remote_closed)
        self.tell("request", stream.id, head.method, head.path, bool(stream.remote_closed))

    def on_bad_request(self, stream: Stream, kind: str, detail: str) -> None:
        self._own(stream)
        self.tell("bad_request", stream.id, kind)
        if self.answering:
            self.conn.send_head(stream, self.answering, (), True)

    def on_ready(self) -> None:
        self.tell("ready")

    def on_goaway(self, code: int, detail: str) -> None:
        self.tell("goaway", code)

    def on_idle(self) -> None:
        self.tell("idle")

    def on_fault(self, code: int, detail: str) -> None:
        self.tell("fault", code)

    def count(self, name: str) -> None:
        self.tell("count", name)

    # What the tests call.

    def _own(self, stream: Stream) -> Owner:
        owner = Owner(self)
        owner.stream = stream
        stream.owner = owner
        assert stream.id not in self.owners, "a stream was announced twice"
        self.owners[stream.id] = owner
        return owner

    def request(self, fields: Fields = GET, *, end: bool = True, no_body: bool = False) -> Stream:
        """Open a stream (client)."""
        owner = Owner(self)
        stream = self.conn.open_stream(owner, fields, (), end, no_body)
        owner.stream = stream
        self.owners[stream.id] = owner
        return stream

    def respond(
        self, stream_id: int, fields: Fields = OK, body: bytes | None = None, *, end: bool = True
    ) -> None:
        """A response (server); without ``body`` the head ends it."""
        stream = self.stream(stream_id)
        self.conn.send_head(stream, fields, (), end and body is None)
        if body is not None:
            self.conn.send_data(stream, body, end)

    def stream(self, stream_id: int) -> Any:
        return self.conn.streams[stream_id]

    def send(self, stream_id: int, octets: bytes, *, end: bool = False) -> int:
        return self.conn.send_data(self.stream(stream_id), octets, end)

    def feed(self, octets: bytes, now: float | None = None) -> None:
        if now is not None:
            self.now = now
        self.conn.receive(octets, self.now)

    def check(self, now: float) -> None:
        self.now = now
        self.conn.check(now)

    def take(self, most: int = -1) -> bytes:
        """What would go to the socket, at most so many octets of it."""
        octets = bytes(self.conn.out if most < 0 else self.conn.out[:most])
        assert bool(self.flush_list) or not octets or most >= 0 or not self.conn.dirty
        del self.conn.out[: len(octets)]
        self.flush_list.clear()
        self.conn.dirty = False
        self.conn.flushed(self.now)
        return octets

    def written(self) -> list[Effect]:
        """The frames written since the last call, as tuples."""
        shown: list[Effect] = []
        section = b""
        octets = self.take()
        if octets.startswith(f.PREFACE):
            shown.append(("PREFACE",))
            octets = octets[len(f.PREFACE) :]
        for kind, flags, stream_id, payload in raw_frames(octets):
            end = bool(flags & f.FLAG_END_STREAM)
            number = int.from_bytes(payload[:4], "big")
            if kind == f.DATA:
                shown.append(("DATA", stream_id, payload, end))
            elif kind in (f.HEADERS, f.CONTINUATION):
                section += payload
                if kind == f.HEADERS:
                    section_end = end
                if flags & f.FLAG_END_HEADERS:
                    fields = tuple(
                        (bytes(name), bytes(value))
                        for name, value in self.decoder.decode(section, raw=True)
                    )
                    shown.append(("HEADERS", stream_id, fields, section_end))
                    section = b""
            elif kind == f.RST_STREAM:
                shown.append(("RST_STREAM", stream_id, number))
            elif kind == f.SETTINGS:
                pairs = {
                    int.from_bytes(payload[i : i + 2], "big"): int.from_bytes(
                        payload[i + 2 : i + 6], "big"
                    )
                    for i in range(0, len(payload), 6)
                }
                shown.append(("SETTINGS_ACK",) if flags else ("SETTINGS", pairs))
            elif kind == f.PING:
                shown.append(("PING_ACK" if flags else "PING", payload))
            elif kind == f.GOAWAY:
                shown.append(("GOAWAY", number, int.from_bytes(payload[4:8], "big")))
            elif kind == f.WINDOW_UPDATE:
                shown.append(("WINDOW_UPDATE", stream_id, number))
            else:
                raise AssertionError(f"frame type {kind} was written")
        return shown

    def effects(self) -> list[Effect]:
        """All since the last call. Pieces of one body are joined: where reads end is no effect."""
        written = self.written()
        joined: list[Effect] = []
        for event in self.events:
            last = joined[-1] if joined else ()
            if event[0] == "data" and last and last[:2] == event[:2]:
                joined[-1] = (*event[:2], last[2] + event[2], event[3])
            else:
                joined.append(event)
        self.events.clear()
        return joined + written

    def check_invariants(self) -> None:
        """What holds at any moment of any conversation."""
        conn = self.conn
        streams = list(conn.streams.values())
        assert conn.held >= 0
        assert sum(stream.held for stream in streams) == conn.held
        assert all(stream.held >= 0 for stream in streams)
        assert self.budget.total == sum(len(stream.pending or b"") for stream in streams)
        assert -f.MAX_WINDOW <= conn.send_window <= f.MAX_WINDOW or conn.broken
        assert 0 <= conn.recv_window <= f.MAX_WINDOW
        for stream in streams:
            assert stream.open
            assert not (stream.local_closed and stream.remote_closed)
            assert stream.send_window <= f.MAX_WINDOW or conn.broken
            assert 0 <= stream.recv_window <= f.MAX_WINDOW
        for owner in self.owners.values():
            assert len(owner.closed) <= 1
            assert owner.stream is not None
            if owner.closed:
                assert not owner.stream.open
            if not owner.stream.open:
                assert owner.stream.held == 0
                assert owner.stream.pending is None
        if conn.broken:
            assert not conn.streams


def play(side: Side, *steps: tuple[bytes | Callable[[], object], list[Effect]]) -> None:
    """Run a script: octets that come in, or a call; and all that must follow from it."""
    for number, (what, expected) in enumerate(steps):
        if isinstance(what, bytes):
            side.feed(what)
        else:
            what()
        assert side.effects() == expected, f"step {number}"
        side.check_invariants()


# --------------------------------------------------------------------- the three ways, and more


def chunks(octets: bytes, ends: Iterable[int]) -> list[bytes]:
    """``octets`` cut at ``ends``."""
    cuts = [0, *sorted({end for end in ends if 0 < end < len(octets)}), len(octets)]
    return [octets[a:b] for a, b in pairwise(cuts)]


def every_way(octets: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and cut in two at every place."""
    yield [octets]
    yield [octets[i : i + 1] for i in range(len(octets))]
    step = 1 if len(octets) < 400 else len(octets) // 100
    for i in range(1, len(octets), step):
        yield [octets[:i], octets[i:]]


def same_every_way(
    make: Callable[[], Side], octets: bytes, expected: list[Effect], *, merge: bool = False
) -> None:
    """The octets have the same effects however they are cut, and with more behind them.

    ``merge`` compares without WINDOW_UPDATE frames, where their number depends on the cuts.
    """

    def seen(side: Side) -> list[Effect]:
        effects = side.effects()
        return [e for e in effects if e[0] != "WINDOW_UPDATE"] if merge else effects

    for cut in every_way(octets):
        side = make()
        for piece in cut:
            side.feed(piece)
            side.check_invariants()
        assert seen(side) == expected, cut
    # With the beginning of the next frame behind it, and then the rest of that.
    following = ping(b"trailing")
    for i in (1, 5, 9, 12):
        side = make()
        side.feed(octets + following[:i])
        assert seen(side) == expected
        side.feed(following[i:])
        broken = any(effect[0] == "fault" for effect in expected)
        assert side.effects() == ([] if broken else [("PING_ACK", b"trailing")])
        side.check_invariants()


# ------------------------------------------------------------------------------ the h2 library


class Library:
    """The ``h2`` library as the peer."""

    def __init__(self, *, client: bool, consuming: bool = True, **options: Any) -> None:
        self.conn = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client, header_encoding=False, **options)
        )
        self.consuming = consuming
        self.events: list[Any] = []
        self.bodies: dict[int, bytearray] = {}
        self.gone: set[int] = set()
        self.conn.initiate_connection()

    def receive(self, octets: bytes) -> None:
        events = self.conn.receive_data(octets)
        ended = {e.stream_id for e in events if isinstance(e, h2.events.StreamEnded)}
        for event in events:
            if isinstance(event, h2.events.StreamReset):
                self.gone.add(event.stream_id)
            if isinstance(event, h2.events.DataReceived):
                self.bodies.setdefault(event.stream_id, bytearray()).extend(event.data)
                if self.consuming and event.flow_controlled_length:
                    self.conn.increment_flow_control_window(event.flow_controlled_length)
                    if event.stream_id not in ended | self.gone:
                        self.conn.increment_flow_control_window(
                            event.flow_controlled_length, event.stream_id
                        )
        self.events += events

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def converse(
    side: Side, library: Library, cut: Callable[[bytes], list[bytes]] | None = None
) -> None:
    """Move octets both ways until both are silent."""
    cut = cut or (lambda octets: [octets])
    while True:
        ours = side.take()
        theirs = library.conn.data_to_send() or b""
        if not ours and not theirs:
            return
        for piece in cut(ours) if ours else ():
            library.receive(piece)
        for piece in cut(theirs) if theirs else ():
            side.feed(piece)
            side.check_invariants()

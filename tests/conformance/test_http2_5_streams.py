"""Streams: states, identifiers, concurrency, errors, extension; RFC 9113 sections 5.1 to 5.5.

Where a frame comes after the stream's end, section 5.1 lets the server answer with a stream or with
a connection error. The cases of 5.3.1 are of RFC 7540: RFC 9113 has taken priorities away and would
let a server ignore them, but the field's suite still counts them.
"""

from __future__ import annotations

from . import frames as f
from .frames import END_HEADERS, END_STREAM, Code, Setting
from .peer import ANY, Address, Peer
from .script import (
    Case,
    closed,
    connection_error,
    each,
    goaway,
    ping_acked,
    response,
    stream_error,
)

GET = f.request()
POST = f.request(method=b"POST")
OPEN_GET = f.headers(1, GET, END_HEADERS)
DUMMY = f.dummy_fields(1)
PING_ON_STREAM = f.frame(0x6, 0, 3, bytes(8))
UNKNOWN = f.frame(0x16, 0, 0, bytes(8))


def one_stream_too_many(peer: Peer) -> None:
    """Open one stream more than the server allows; nothing ends, as our window is zero."""
    allowed = peer.server_settings.get(Setting.MAX_CONCURRENT_STREAMS)
    assert allowed is not None, "the server advertises no limit"
    peer.send(f.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    peer.expect_settings_ack()
    peer.send(b"".join(f.headers(stream, GET) for stream in range(1, 2 * allowed + 2, 2)))


IDLE = (
    Case("http2/5.1/1 idle: DATA", f.data(1, b"test", END_STREAM),
         connection_error(Code.PROTOCOL_ERROR)),
    Case("http2/5.1/2 idle: RST_STREAM", f.rst_stream(1), connection_error(Code.PROTOCOL_ERROR)),
    Case("http2/5.1/3 idle: WINDOW_UPDATE", f.window_update(1, 100),
         connection_error(Code.PROTOCOL_ERROR)),
    Case("http2/5.1/4 idle: CONTINUATION", f.continuation(1, GET),
         connection_error(Code.PROTOCOL_ERROR)),
    Case("rfc9113/5.1 idle: DATA on a stream above an open one", OPEN_GET,
         f.data(3, b"test", END_STREAM), connection_error(Code.PROTOCOL_ERROR)),
    Case("rfc9113/5.1 idle: WINDOW_UPDATE on a stream the server would open",
         f.window_update(2, 100), connection_error(Code.PROTOCOL_ERROR)),
)  # fmt: skip

HALF_CLOSED = (
    Case("http2/5.1/5 half-closed (remote): DATA", f.headers(1, GET),
         f.data(1, b"test", END_STREAM), stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/5.1/6 half-closed (remote): HEADERS", f.headers(1, GET), f.headers(1, GET),
         stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/5.1/7 half-closed (remote): CONTINUATION", f.headers(1, GET),
         f.continuation(1, GET), stream_error(1, Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)),
)  # fmt: skip

CLOSED = (
    Case("http2/5.1/8 closed: DATA after RST_STREAM", OPEN_GET, f.rst_stream(1),
         f.data(1, b"test", END_STREAM), stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/5.1/9 closed: HEADERS after RST_STREAM", OPEN_GET, f.rst_stream(1),
         f.headers(1, GET), stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/5.1/10 closed: CONTINUATION after RST_STREAM", OPEN_GET, f.rst_stream(1),
         f.continuation(1, DUMMY), stream_error(1, Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)),
    Case("http2/5.1/11 closed: DATA", f.headers(1, GET), response(1),
         f.data(1, b"test", END_STREAM), stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/5.1/12 closed: HEADERS", f.headers(1, GET), response(1), f.headers(1, GET),
         connection_error(Code.STREAM_CLOSED)),
    Case("http2/5.1/13 closed: CONTINUATION", f.headers(1, GET), response(1),
         f.continuation(1, DUMMY), connection_error(Code.STREAM_CLOSED, Code.PROTOCOL_ERROR)),
    Case("rfc9113/5.1 closed: late WINDOW_UPDATE and RST_STREAM", f.headers(1, GET), response(1),
         f.window_update(1, 100), f.rst_stream(1), f.headers(3, GET), response(3, 200)),
)  # fmt: skip

IDENTIFIERS = (
    Case("http2/5.1.1/1 even stream id", f.headers(2, GET), connection_error(Code.PROTOCOL_ERROR)),
    # A lower identifier counts as closed (5.1.1); a server need not remember whether it was used.
    Case("http2/5.1.1/2 decreasing stream id", f.headers(5, GET), f.headers(3, GET),
         connection_error(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED)),
    Case("http2/5.1.1/3 second HEADERS on a half-closed (remote) stream", f.headers(5, GET),
         f.headers(5, GET), stream_error(5, Code.STREAM_CLOSED)),
    Case("http2/5.1.2/1 one stream above SETTINGS_MAX_CONCURRENT_STREAMS", one_stream_too_many,
         stream_error(ANY, Code.PROTOCOL_ERROR, Code.REFUSED_STREAM)),
    Case("rfc9113/5.1.1 the largest stream id", f.headers(f.MAX_WINDOW, GET),
         response(f.MAX_WINDOW, 200)),
    Case("http2/5.3.1/1 HEADERS that depends on itself", f.headers(1, GET, depends_on=1),
         stream_error(1, Code.PROTOCOL_ERROR)),
    Case("http2/5.3.1/2 PRIORITY that depends on itself", f.priority(1, depends_on=1),
         stream_error(1, Code.PROTOCOL_ERROR)),
)  # fmt: skip

ERRORS = (
    Case("http2/5.4.1/1 connection closed after an error", PING_ON_STREAM, closed),
    Case("http2/5.4.1/2 GOAWAY before the connection is closed", PING_ON_STREAM,
         goaway(Code.PROTOCOL_ERROR)),
    Case("http2/5.5/1 unknown extension frame", UNKNOWN, f.ping(), ping_acked()),
    Case("http2/5.5/2 unknown extension frame inside a field block", f.headers(1, GET, END_STREAM),
         UNKNOWN, connection_error(Code.PROTOCOL_ERROR)),
)  # fmt: skip


@each(IDLE + HALF_CLOSED + CLOSED + IDENTIFIERS + ERRORS)
def test_streams(case: Case, server: Address) -> None:
    case.run(server)


def test_goaway_names_the_last_stream(server: Address) -> None:
    """rfc9113/6.8: GOAWAY tells the highest stream that was or might be processed."""
    with Peer(server).handshake() as peer:
        peer.get(1)
        peer.get(3)
        peer.send(PING_ON_STREAM)
        assert peer.expect_goaway(Code.PROTOCOL_ERROR).last_stream == 3


def test_requests_before_a_connection_error_do_not_hurt_others(server: Address) -> None:
    """rfc9113/5.4.1: the error of one connection is nobody else's."""
    with Peer(server).handshake() as other, Peer(server).handshake() as peer:
        other.get(1)
        peer.send(f.headers(1, POST, END_HEADERS), PING_ON_STREAM)
        peer.expect_goaway(Code.PROTOCOL_ERROR)
        assert other.get(3).status == 200

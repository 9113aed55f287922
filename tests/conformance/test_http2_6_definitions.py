"""Frame definitions, RFC 9113 sections 6.1 to 6.10."""

from __future__ import annotations

from . import frames as f
from .frames import ACK, END_HEADERS, END_STREAM, MAX_WINDOW, PADDED, Code, Setting, Type
from .peer import Address, Peer
from .script import (
    Case,
    Step,
    alive,
    connection_error,
    data_of,
    each,
    goaway,
    head,
    ping_acked,
    reset,
    response,
    settings_acked,
    stream_error,
)

GET = f.request()
POST = f.request(method=b"POST")
OPEN_GET = f.headers(1, GET, END_HEADERS)
OPEN_POST = f.headers(1, POST, END_HEADERS)
DUMMY = f.dummy_fields(1)
PROTOCOL = connection_error(Code.PROTOCOL_ERROR)
FRAME_SIZE = connection_error(Code.FRAME_SIZE_ERROR)
FLOW_CONTROL = connection_error(Code.FLOW_CONTROL_ERROR)


def window(size: int) -> bytes:
    """SETTINGS with the initial window of our streams."""
    return f.settings({Setting.INITIAL_WINDOW_SIZE: size})


def setting(identifier: int, value: int) -> bytes:
    """SETTINGS with one value."""
    return f.settings([(identifier, value)])


def only_second_ping_acked(peer: Peer) -> None:
    """The first PING, itself an acknowledgement, must not come back."""
    got = peer.wait(lambda frame: frame.type == Type.PING, "the ACK of the second PING")
    if got.payload != b"expected":
        raise peer.mismatch("the ACK of the second PING", f"it is {got}")


def no_data(stream: int) -> Step:
    """A PING comes back before any DATA does."""

    def check(peer: Peer) -> None:
        payload = b"no data!"
        peer.send(f.ping(payload))
        got = peer.wait(
            lambda frame: frame.type == Type.DATA or (frame.is_ack and frame.payload == payload),
            "PING ACK",
        )
        if got.type == Type.DATA and got.payload:
            raise peer.mismatch(f"no DATA on stream {stream}", f"it is {got}")

    return check


DATA = (
    Case("http2/6.1/1 DATA on stream 0", f.data(0, b"test", END_STREAM), PROTOCOL),
    Case("http2/6.1/2 DATA on a half-closed (remote) stream", f.headers(1, POST),
         f.data(1, b"test", END_STREAM), stream_error(1, Code.STREAM_CLOSED)),
    Case("http2/6.1/3 DATA with more padding than payload",
         f.headers(1, f.request((b"content-length", b"4"), method=b"POST"), END_HEADERS),
         f.frame(Type.DATA, END_STREAM | PADDED, 1, b"\x06Test"), PROTOCOL),
    Case("rfc9113/6.1 padding as long as the payload", OPEN_POST,
         f.frame(Type.DATA, END_STREAM | PADDED, 1, b"\x05Test"), PROTOCOL),
    Case("rfc9113/6.1 padding that is the whole payload", OPEN_POST,
         f.data(1, b"", END_STREAM, padding=255), response(1, 200)),
    Case("rfc9113/6.1 DATA without the pad length", OPEN_POST,
         f.frame(Type.DATA, END_STREAM | PADDED, 1),
         connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR)),
)  # fmt: skip

HEADERS = (
    Case("http2/6.2/1 HEADERS without END_HEADERS, then PRIORITY", f.headers(1, GET, 0),
         f.priority(1), f.continuation(1, DUMMY), PROTOCOL),
    Case("http2/6.2/2 HEADERS without END_HEADERS, then HEADERS of another stream",
         f.headers(1, GET, 0), f.headers(3, GET), f.continuation(1, DUMMY), PROTOCOL),
    Case("http2/6.2/3 HEADERS on stream 0", f.headers(0, GET), PROTOCOL),
    Case("http2/6.2/4 HEADERS with more padding than payload",
         f.frame(Type.HEADERS, END_STREAM | END_HEADERS | PADDED, 1, bytes([len(GET) + 2]) + GET),
         stream_error(1, Code.PROTOCOL_ERROR)),
    Case("rfc9113/6.2 HEADERS too short for its priority fields",
         f.frame(Type.HEADERS, END_STREAM | END_HEADERS | f.PRIORITY_FLAG, 1, b"\0\0\0"),
         connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR)),
    Case("rfc9113/6.2 HEADERS with an empty fragment, the block in CONTINUATION",
         f.headers(1, b"", END_STREAM), f.continuation(1, GET), response(1, 200)),
    Case("rfc9113/6.2 HEADERS with padding, priority and CONTINUATION",
         f.headers(1, GET[:7], END_STREAM, padding=200, depends_on=0), f.continuation(1, GET[7:]),
         response(1, 200)),
)  # fmt: skip

PRIORITY_AND_RESET = (
    Case("http2/6.3/1 PRIORITY on stream 0", f.priority(0), PROTOCOL),
    Case("http2/6.3/2 PRIORITY of 4 octets", f.headers(1, GET),
         f.frame(Type.PRIORITY, 0, 1, b"\x80\0\0\x01"), stream_error(1, Code.FRAME_SIZE_ERROR)),
    Case("http2/6.3/3 PRIORITY of an idle stream, then a lower one opens", f.priority(3),
         f.headers(1, GET), head(1, 200)),
    Case("http2/6.4/1 RST_STREAM on stream 0", f.rst_stream(0), PROTOCOL),
    Case("http2/6.4/2 RST_STREAM on an idle stream", f.rst_stream(1), PROTOCOL),
    Case("http2/6.4/3 RST_STREAM of 3 octets", f.headers(1, GET),
         f.frame(Type.RST_STREAM, 0, 1, bytes(3)), stream_error(1, Code.FRAME_SIZE_ERROR)),
)  # fmt: skip

SETTINGS = (
    Case("http2/6.5/1 SETTINGS ACK with a payload", f.frame(Type.SETTINGS, ACK, 0, b"\0"),
         FRAME_SIZE),
    Case("http2/6.5/2 SETTINGS on stream 1",
         f.frame(Type.SETTINGS, 0, 1, b"\0\x03\0\0\0\x64"), PROTOCOL),
    Case("http2/6.5/3 SETTINGS of a length that 6 does not divide",
         f.frame(Type.SETTINGS, 0, 0, b"\0\x03\0\0\0\x64\0\x02\0"),
         connection_error(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR)),
    Case("http2/6.5.2/1 SETTINGS_ENABLE_PUSH of 2", setting(Setting.ENABLE_PUSH, 2), PROTOCOL),
    Case("http2/6.5.2/2 SETTINGS_INITIAL_WINDOW_SIZE of 2^31", window(2**31), FLOW_CONTROL),
    Case("http2/6.5.2/3 SETTINGS_MAX_FRAME_SIZE below 2^14",
         setting(Setting.MAX_FRAME_SIZE, 2**14 - 1), PROTOCOL),
    Case("http2/6.5.2/4 SETTINGS_MAX_FRAME_SIZE above 2^24 - 1",
         setting(Setting.MAX_FRAME_SIZE, 2**24), PROTOCOL),
    Case("http2/6.5.2/5 unknown setting", setting(0xFF, 1), f.ping(), ping_acked()),
    Case("http2/6.5.3/1 the last of two values of one setting holds",
         f.settings([(Setting.INITIAL_WINDOW_SIZE, 100), (Setting.INITIAL_WINDOW_SIZE, 1)]),
         settings_acked, f.headers(1, GET), data_of(1, 1)),
    Case("http2/6.5.3/2 SETTINGS is acknowledged", setting(Setting.ENABLE_PUSH, 0), settings_acked),
    Case("rfc9113/6.5.3 SETTINGS is acknowledged before the DATA that it lets through", window(0),
         settings_acked, f.headers(1, GET), head(1, 200), alive, window(1), settings_acked,
         data_of(1, 1)),
    Case("rfc9113/6.5 empty SETTINGS is acknowledged", f.settings(), settings_acked),
    Case("rfc9113/6.5.2 SETTINGS_HEADER_TABLE_SIZE of 0 and back",
         setting(Setting.HEADER_TABLE_SIZE, 0), settings_acked, f.headers(1, GET), response(1, 200),
         setting(Setting.HEADER_TABLE_SIZE, 4096), settings_acked, f.headers(3, GET),
         response(3, 200)),
)  # fmt: skip

PING_AND_GOAWAY = (
    Case("http2/6.7/1 PING", f.ping(b"8 octets"), ping_acked(b"8 octets")),
    Case("http2/6.7/2 PING with ACK", f.ping(b"ignore:)", ACK), f.ping(b"expected"),
         only_second_ping_acked),
    Case("http2/6.7/3 PING on stream 1", f.frame(Type.PING, 0, 1, bytes(8)), PROTOCOL),
    Case("http2/6.7/4 PING of 6 octets", f.frame(Type.PING, 0, 0, bytes(6)), FRAME_SIZE),
    Case("http2/6.8/1 GOAWAY on stream 1", f.frame(Type.GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    Case("rfc9113/6.8 GOAWAY of 7 octets", f.frame(Type.GOAWAY, 0, 0, bytes(7)), FRAME_SIZE),
    Case("rfc9113/6.8 open streams go on after GOAWAY", OPEN_POST, f.goaway(),
         f.data(1, b"test", END_STREAM), response(1, 200)),
)  # fmt: skip

WINDOW_UPDATE = (
    Case("http2/6.9/1 increment of 0 on the connection", f.window_update(0, 0), PROTOCOL),
    Case("http2/6.9/2 increment of 0 on a stream", OPEN_GET, f.window_update(1, 0),
         stream_error(1, Code.PROTOCOL_ERROR)),
    Case("http2/6.9/3 WINDOW_UPDATE of 3 octets", f.frame(Type.WINDOW_UPDATE, 0, 0, b"\0\0\x01"),
         FRAME_SIZE),
    Case("http2/6.9.1/1 a window of 1 lets one octet through", window(1), settings_acked,
         f.headers(1, GET), data_of(1, 1)),
    Case("http2/6.9.1/2 connection window above 2^31 - 1", f.window_update(0, MAX_WINDOW),
         f.window_update(0, MAX_WINDOW), goaway(Code.FLOW_CONTROL_ERROR)),
    Case("http2/6.9.1/3 stream window above 2^31 - 1", OPEN_GET, f.window_update(1, MAX_WINDOW),
         f.window_update(1, MAX_WINDOW), reset(1, Code.FLOW_CONTROL_ERROR)),
    Case("http2/6.9.2/1 SETTINGS_INITIAL_WINDOW_SIZE changes open streams", window(0),
         settings_acked, f.headers(1, GET), window(1), settings_acked, data_of(1, 1)),
    Case("http2/6.9.2/2 a window made negative", window(3), settings_acked, f.headers(1, GET),
         data_of(1), window(2), settings_acked, f.window_update(1, 2), data_of(1, 1)),
    Case("http2/6.9.2/3 SETTINGS_INITIAL_WINDOW_SIZE above 2^31 - 1", window(2**31), FLOW_CONTROL),
    Case("rfc9113/6.9.2 SETTINGS that carries an open window above 2^31 - 1", OPEN_GET,
         f.window_update(1, MAX_WINDOW - f.DEFAULT_WINDOW), window(f.DEFAULT_WINDOW + 1),
         FLOW_CONTROL),
    Case("rfc9113/6.9.2 no DATA while the window is negative", window(3), settings_acked,
         f.headers(1, GET), data_of(1, 3), window(0), settings_acked, f.window_update(1, 3),
         no_data(1), f.window_update(1, 4), data_of(1, 4)),
    Case("rfc9113/6.9 reserved bit of the increment", f.headers(1, GET),
         f.window_update(1, 0x8000_0000 | 10), response(1, 200)),
    Case("rfc9113/6.9.1 empty DATA needs no window", f.headers(1, f.request(path=b"/bytes/0")),
         response(1), alive),
)  # fmt: skip

CONTINUATION = (
    Case("http2/6.10/1 several CONTINUATION after HEADERS", f.headers(1, GET, END_STREAM),
         f.continuation(1, DUMMY, 0), f.continuation(1, DUMMY), head(1, 200)),
    Case("http2/6.10/2 CONTINUATION, then DATA", f.headers(1, POST, 0), f.continuation(1, DUMMY, 0),
         f.data(1, b"test", END_STREAM), PROTOCOL),
    Case("http2/6.10/3 CONTINUATION on stream 0", f.headers(1, GET, END_STREAM),
         f.continuation(0, DUMMY), PROTOCOL),
    Case("http2/6.10/4 CONTINUATION after HEADERS with END_HEADERS", f.headers(1, GET),
         f.continuation(1, DUMMY), PROTOCOL),
    Case("http2/6.10/5 CONTINUATION after CONTINUATION with END_HEADERS",
         f.headers(1, GET, END_STREAM), f.continuation(1, DUMMY), f.continuation(1, DUMMY),
         PROTOCOL),
    Case("http2/6.10/6 CONTINUATION after DATA", f.headers(1, POST, 0),
         f.data(1, b"test", END_STREAM), f.continuation(1, DUMMY, 0), f.continuation(0, DUMMY),
         PROTOCOL),
    Case("rfc9113/6.10 CONTINUATION of another stream", f.headers(1, GET, END_STREAM),
         f.continuation(3, DUMMY), PROTOCOL),
)  # fmt: skip


@each(
    DATA + HEADERS + PRIORITY_AND_RESET + SETTINGS + PING_AND_GOAWAY + WINDOW_UPDATE + CONTINUATION
)
def test_definitions(case: Case, server: Address) -> None:
    case.run(server)


def test_padding_counts_against_the_windows(server: Address) -> None:
    """rfc9113/6.1: padding is flow-controlled, so what it takes of the windows must come back."""
    padded = f.data(1, b"x", padding=255)
    length = len(padded) - 9
    with Peer(server).handshake() as peer:

        def room() -> int:
            of_streams = peer.server_settings.get(Setting.INITIAL_WINDOW_SIZE, f.DEFAULT_WINDOW)
            of_connection = f.DEFAULT_WINDOW + peer.credit.get(0, 0)
            return min(of_streams + peer.credit.get(1, 0), of_connection) - sent

        sent = 0
        peer.send(f.headers(1, POST, END_HEADERS))
        peer.expect_alive()
        enough = 4 * (room() + peer.credit.get(0, 0))
        while sent < enough:
            while room() < length:
                peer.wait(
                    lambda got: got.type in (Type.WINDOW_UPDATE, Type.SETTINGS), "more window"
                )
            peer.send(padded)
            sent += length
        peer.send(f.data(1, b"", END_STREAM))
        peer.expect_response(1, 200)

"""Each rule of RFC 9113 whose breach ends the connection or the stream, with its error code."""

from __future__ import annotations

import pytest

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode as E
from gateway.wire.frames import Setting as S  # noqa: N817

from .peer import (
    GET,
    OK,
    POST,
    Side,
    block,
    data,
    every_way,
    frame,
    goaway,
    headers,
    padded,
    ping,
    rst,
    same_every_way,
    settings,
    window_update,
)

BLOCK = block(GET)
END_HEADERS = f.FLAG_END_HEADERS
WHOLE = f.FLAG_END_HEADERS | f.FLAG_END_STREAM

# Stream 1 is open, 3 is half-closed (remote), 5 was ended by both, 7 was reset by the client.
OPENED = headers(1, POST) + headers(3, GET, end=True) + headers(5, GET, end=True) + headers(7, POST)

# name: octets, code, counter
CONNECTION_ERRORS = {
    # 4.2 and the frames' own lengths
    "4.2 frame above the maximum": (
        data(1, bytes(16385)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "4.2 unknown frame above the maximum": (
        frame(0x77, 0, 0, bytes(16385)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "4.3 header block that does not decode": (
        frame(f.HEADERS, WHOLE, 9, b"\x80"), E.COMPRESSION_ERROR, "hpack_error"),
    "4.3 header block that is cut off": (
        frame(f.HEADERS, WHOLE, 9, BLOCK[:-1]), E.COMPRESSION_ERROR, "hpack_error"),
    "4.3 the same in trailers": (
        frame(f.HEADERS, WHOLE, 1, b"\x80"), E.COMPRESSION_ERROR, "hpack_error"),
    "4.3 the same on a stream that is closed": (
        frame(f.HEADERS, WHOLE, 5, b"\x80"), E.COMPRESSION_ERROR, "hpack_error"),
    # 5.1: what idle streams must not see
    "5.1 DATA on an idle stream": (data(9, b"x"), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 DATA on an idle stream of ours": (data(2, b"x"), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 RST_STREAM on an idle stream": (rst(9), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 WINDOW_UPDATE on an idle stream": (
        window_update(9, 1), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1.1 an even identifier": (headers(10, GET, end=True), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1.1 HEADERS on a stream that both ended": (
        headers(5, GET, end=True), E.STREAM_CLOSED, "protocol_error"),
    "5.1.1 HEADERS on a stream that the client reset": (
        headers(7, GET, end=True), E.STREAM_CLOSED, "protocol_error"),
    # 6.1
    "6.1 DATA on stream 0": (data(0, b"x"), E.PROTOCOL_ERROR, "protocol_error"),
    "6.1 padding as long as the payload": (
        frame(f.DATA, f.FLAG_PADDED, 1, b"\x04abc"), E.PROTOCOL_ERROR, "protocol_error"),
    "6.1 padded without a pad length": (
        frame(f.DATA, f.FLAG_PADDED, 1), E.FRAME_SIZE_ERROR, "frame_size_error"),
    # 6.2
    "6.2 HEADERS on stream 0": (headers(0, GET), E.PROTOCOL_ERROR, "protocol_error"),
    "6.2 padding as long as the payload": (
        frame(f.HEADERS, WHOLE | f.FLAG_PADDED, 9, bytes((len(BLOCK) + 1,)) + BLOCK),
        E.PROTOCOL_ERROR, "protocol_error"),
    "6.2 padded without a pad length": (
        frame(f.HEADERS, WHOLE | f.FLAG_PADDED, 9), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.2 too short for the priority fields": (
        frame(f.HEADERS, WHOLE | f.FLAG_PRIORITY, 9, bytes(4)),
        E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.2 padding that reaches into the priority fields": (
        frame(f.HEADERS, WHOLE | f.FLAG_PRIORITY | f.FLAG_PADDED, 9, padded(bytes(4), 1)[:-1]),
        E.FRAME_SIZE_ERROR, "frame_size_error"),
    # 6.3
    "6.3 PRIORITY on stream 0": (
        frame(f.PRIORITY, 0, 0, bytes(5)), E.PROTOCOL_ERROR, "protocol_error"),
    # 6.4
    "6.4 RST_STREAM on stream 0": (rst(0), E.PROTOCOL_ERROR, "protocol_error"),
    "6.4 RST_STREAM of 3 octets": (
        frame(f.RST_STREAM, 0, 1, bytes(3)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.4 RST_STREAM of 5 octets": (
        frame(f.RST_STREAM, 0, 1, bytes(5)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    # 6.5
    "6.5 SETTINGS on a stream": (
        frame(f.SETTINGS, 0, 1), E.PROTOCOL_ERROR, "protocol_error"),
    "6.5 SETTINGS ACK with a payload": (
        frame(f.SETTINGS, f.FLAG_ACK, 0, bytes(6)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.5 SETTINGS of 7 octets": (
        frame(f.SETTINGS, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.5.2 ENABLE_PUSH 2": (
        settings((S.ENABLE_PUSH, 2)), E.PROTOCOL_ERROR, "protocol_error"),
    "6.5.2 INITIAL_WINDOW_SIZE 2^31": (
        settings((S.INITIAL_WINDOW_SIZE, 2**31)), E.FLOW_CONTROL_ERROR, "flow_control_error"),
    "6.5.2 MAX_FRAME_SIZE 16383": (
        settings((S.MAX_FRAME_SIZE, 16383)), E.PROTOCOL_ERROR, "protocol_error"),
    "6.5.2 MAX_FRAME_SIZE 2^24": (
        settings((S.MAX_FRAME_SIZE, 2**24)), E.PROTOCOL_ERROR, "protocol_error"),
    "RFC 8441 ENABLE_CONNECT_PROTOCOL 2": (
        settings((S.ENABLE_CONNECT_PROTOCOL, 2)), E.PROTOCOL_ERROR, "protocol_error"),
    "RFC 9218 NO_RFC7540_PRIORITIES 2": (
        settings((S.NO_RFC7540_PRIORITIES, 2)), E.PROTOCOL_ERROR, "protocol_error"),
    # 6.6, 8.4
    "8.4 PUSH_PROMISE": (
        frame(f.PUSH_PROMISE, END_HEADERS, 1, bytes((0, 0, 0, 2)) + BLOCK),
        E.PROTOCOL_ERROR, "protocol_error"),
    # 6.7
    "6.7 PING on a stream": (
        frame(f.PING, 0, 1, bytes(8)), E.PROTOCOL_ERROR, "protocol_error"),
    "6.7 PING of 7 octets": (
        frame(f.PING, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.7 PING ACK of 9 octets": (
        frame(f.PING, f.FLAG_ACK, 0, bytes(9)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    # 6.8
    "6.8 GOAWAY on a stream": (
        frame(f.GOAWAY, 0, 1, bytes(8)), E.PROTOCOL_ERROR, "protocol_error"),
    "6.8 GOAWAY of 7 octets": (
        frame(f.GOAWAY, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    # 6.9
    "6.9 WINDOW_UPDATE of 3 octets": (
        frame(f.WINDOW_UPDATE, 0, 1, bytes(3)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.9 WINDOW_UPDATE of 5 octets": (
        frame(f.WINDOW_UPDATE, 0, 0, bytes(5)), E.FRAME_SIZE_ERROR, "frame_size_error"),
    "6.9 WINDOW_UPDATE of 0 on the connection": (
        window_update(0, 0), E.PROTOCOL_ERROR, "protocol_error"),
    "6.9.1 the connection's window above 2^31-1": (
        window_update(0, 2**31 - 1), E.FLOW_CONTROL_ERROR, "flow_control_error"),
    "6.9.2 a stream's window above 2^31-1 by SETTINGS": (
        window_update(1, 2**31 - 1 - 65535) + settings((S.INITIAL_WINDOW_SIZE, 65536)),
        E.FLOW_CONTROL_ERROR, "flow_control_error"),
    # 6.10
    "6.10 CONTINUATION without HEADERS": (
        frame(f.CONTINUATION, END_HEADERS, 1, BLOCK), E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 CONTINUATION after END_HEADERS": (
        headers(9, GET, end=True) + frame(f.CONTINUATION, END_HEADERS, 9, b""),
        E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 CONTINUATION on another stream": (
        frame(f.HEADERS, 0, 9, BLOCK) + frame(f.CONTINUATION, END_HEADERS, 11, b""),
        E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 CONTINUATION on stream 0": (
        frame(f.HEADERS, 0, 9, BLOCK) + frame(f.CONTINUATION, END_HEADERS, 0, b""),
        E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 interrupted by PING": (
        frame(f.HEADERS, 0, 9, BLOCK) + ping(), E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 interrupted by DATA": (
        frame(f.HEADERS, 0, 9, BLOCK) + data(1, b"x"), E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 interrupted by HEADERS": (
        frame(f.HEADERS, 0, 9, BLOCK) + headers(11, GET), E.PROTOCOL_ERROR, "protocol_error"),
    "6.10 interrupted by an unknown frame": (
        frame(f.HEADERS, 0, 9, BLOCK) + frame(0x77), E.PROTOCOL_ERROR, "protocol_error"),
}  # fmt: skip

# What only a client can meet. Its stream 1 is open, 3 was ended by both.
CLIENT_ERRORS = {
    "5.1 HEADERS on an idle stream": (headers(5, OK), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 HEADERS on a stream of the server": (headers(2, OK), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 DATA on an idle stream": (data(5, b"x"), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 WINDOW_UPDATE on an idle stream": (
        window_update(5, 1), E.PROTOCOL_ERROR, "protocol_error"),
    "5.1 RST_STREAM on an idle stream": (rst(2), E.PROTOCOL_ERROR, "protocol_error"),
    "6.5.2 ENABLE_PUSH 1 from a server": (
        settings((S.ENABLE_PUSH, 1)), E.PROTOCOL_ERROR, "protocol_error"),
    "8.4 PUSH_PROMISE": (
        frame(f.PUSH_PROMISE, END_HEADERS, 1, bytes((0, 0, 0, 2)) + BLOCK),
        E.PROTOCOL_ERROR, "protocol_error"),
    "4.3 header block that does not decode": (
        frame(f.HEADERS, WHOLE, 1, b"\x80"), E.COMPRESSION_ERROR, "hpack_error"),
    "4.3 the same on a closed stream": (
        frame(f.HEADERS, WHOLE, 3, b"\x80"), E.COMPRESSION_ERROR, "hpack_error"),
    "6.9.1 the connection's window above 2^31-1": (
        window_update(0, 2**31 - 1), E.FLOW_CONTROL_ERROR, "flow_control_error"),
    "6.10 CONTINUATION without HEADERS": (
        frame(f.CONTINUATION, END_HEADERS, 1, b""), E.PROTOCOL_ERROR, "protocol_error"),
    "4.2 frame above the maximum": (
        data(1, bytes(16385)), E.FRAME_SIZE_ERROR, "frame_size_error"),
}  # fmt: skip


def opened_server(**limits) -> Side:
    side = Side(**limits)
    side.feed(OPENED)
    side.respond(5)
    side.feed(rst(7))
    side.effects()
    return side


def opened_client(**limits) -> Side:
    side = Side(client=True, **limits)
    side.request(POST, end=False)
    side.request(GET)
    side.feed(headers(3, OK, end=True))
    side.effects()
    return side


def broken_every_way(make, octets: bytes, code: int, counter: str, last: int, streams: int):
    """GOAWAY with the code, all streams lost, and silence afterwards; at every split."""
    for cut in every_way(octets):
        side = make()
        for piece in cut:
            side.feed(piece)
            side.check_invariants()
        effects = side.effects()
        assert side.conn.broken, cut
        assert effects[-1] == ("GOAWAY", last, code), cut
        assert [e for e in effects if e[0] == "fault"] == [("fault", code)], cut
        assert [e for e in effects if e[0] == "count"] == [("count", counter)], cut
        lost = [e for e in effects if e[0] == "closed"]
        assert len(lost) == streams
        assert all(e[2] == http2.LOST for e in lost)
        side.feed(ping() + headers(99, GET))
        side.check(1e9)
        assert side.effects() == []
        assert side.conn.deadline == float("inf")


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_connection_error_of_a_client(name):
    octets, code, counter = CONNECTION_ERRORS[name]
    # A head that still was whole before the fault opens a stream, and that is lost, too.
    more = 1 if name == "6.10 CONTINUATION after END_HEADERS" else 0
    last = 9 if more else 7
    if "even identifier" in name:
        last = 7
    broken_every_way(opened_server, octets, code, counter, last, 2 + more)


@pytest.mark.parametrize("name", CLIENT_ERRORS)
def test_connection_error_of_a_server(name):
    octets, code, counter = CLIENT_ERRORS[name]
    broken_every_way(opened_client, octets, code, counter, 0, 1)


PREFACE_ERRORS = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "wrong in the last octet": f.PREFACE[:-1] + b"\r",
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "not followed by SETTINGS": f.PREFACE + ping(),
    "followed by an acknowledgement": f.PREFACE + frame(f.SETTINGS, f.FLAG_ACK),
    "followed by HEADERS": f.PREFACE + headers(1, GET),
}


@pytest.mark.parametrize("name", PREFACE_ERRORS)
def test_preface(name):
    """3.4: what does not begin as HTTP/2 is refused at its first wrong octet."""

    def make() -> Side:
        side = Side(ready=False)
        side.effects()
        return side

    broken_every_way(make, PREFACE_ERRORS[name], E.PROTOCOL_ERROR, "protocol_error", 0, 0)


def test_a_server_that_does_not_begin_with_settings():
    def make() -> Side:
        side = Side(client=True, ready=False)
        side.request(GET)
        side.effects()
        return side

    broken_every_way(make, headers(1, OK), E.PROTOCOL_ERROR, "protocol_error", 0, 1)


# ------------------------------------------------------------------------------- stream errors

STREAM_ERRORS = {
    "5.1 DATA after END_STREAM": (data(3, b"x"), 3, E.STREAM_CLOSED),
    "5.1 HEADERS after END_STREAM": (headers(3, GET, end=True), 3, E.STREAM_CLOSED),
    "6.9 WINDOW_UPDATE of 0": (window_update(1, 0), 1, E.PROTOCOL_ERROR),
    "6.9.1 window above 2^31-1": (window_update(1, 2**31 - 1), 1, E.FLOW_CONTROL_ERROR),
    "6.3 PRIORITY of 4 octets": (frame(f.PRIORITY, 0, 1, bytes(4)), 1, E.FRAME_SIZE_ERROR),
    "6.3 PRIORITY of 6 octets": (frame(f.PRIORITY, 0, 3, bytes(6)), 3, E.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", STREAM_ERRORS)
def test_stream_error(name):
    octets, stream_id, code = STREAM_ERRORS[name]
    for cut in every_way(octets):
        side = opened_server()
        for piece in cut:
            side.feed(piece)
            side.check_invariants()
        effects = [e for e in side.effects() if e[0] != "count"]
        assert effects == [
            ("closed", stream_id, http2.VIOLATION, code),
            ("RST_STREAM", stream_id, code),
        ]
        # The neighbours go on.
        side.feed(data(1 if stream_id == 3 else 9, b"on") if stream_id == 3 else ping())
        assert not side.conn.broken


@pytest.mark.parametrize("stream_id", [5, 7])
def test_data_on_a_closed_stream(stream_id):
    """5.1: STREAM_CLOSED once; what follows is let pass, and all of it counts in the window."""
    side = opened_server()
    window = side.conn.recv_window
    side.feed(data(stream_id, b"abc"))
    assert side.effects() == [("RST_STREAM", stream_id, E.STREAM_CLOSED)]
    side.feed(data(stream_id, b"abc"))
    assert side.effects() == []
    assert side.conn.recv_window == window - 6


def test_frames_that_may_come_on_closed_streams():
    """5.1: WINDOW_UPDATE, PRIORITY and RST_STREAM are let pass."""
    octets = b"".join(
        window_update(i, 1) + rst(i) + frame(f.PRIORITY, 0, i, bytes(5)) for i in (5, 7)
    )
    same_every_way(opened_server, octets, [])


def test_data_on_a_closed_stream_of_a_server():
    side = opened_client()
    side.feed(data(3, b"late") + headers(3, OK, end=True) + window_update(3, 1) + rst(3))
    assert side.effects() == []


def test_priority_on_an_idle_stream_is_ignored():
    same_every_way(opened_server, frame(f.PRIORITY, 0, 77, bytes(5)), [])
    side = opened_server()
    side.feed(frame(f.PRIORITY, 0, 77, bytes(5)) + headers(9, GET, end=True))
    assert side.effects() == [("request", 9, b"GET", b"/", True)]


@pytest.mark.parametrize("make", [opened_server, opened_client])
def test_no_rst_stream_goes_out_on_an_idle_stream(make):
    """6.4 forbids it; a PRIORITY of wrong length (6.3) is an error of the connection there."""
    for stream_id in (9, 11, 77):
        side = make()
        side.feed(frame(f.PRIORITY, 0, stream_id, bytes(4)))
        effects = side.effects()
        assert not [e for e in effects if e[0] == "RST_STREAM"]
        assert effects[-1][2] == E.FRAME_SIZE_ERROR


# ------------------------------------------------------------------------------ what is ignored


@pytest.mark.parametrize("make", [opened_server, opened_client])
def test_unknown_frames_and_settings_are_ignored(make):
    """4.1, 5.5, 6.5.2."""
    octets = (
        frame(0x0A, 0xFF, 0, b"anything")
        + frame(0xFF, 0xFF, 1, bytes(100))
        + frame(0x77, 0, 0x7FFFFFFF)
    )
    same_every_way(make, octets, [])
    side = make()
    known = [(S.MAX_HEADER_LIST_SIZE, 100), (S.ENABLE_PUSH, 0)]
    known += [(S.ENABLE_CONNECT_PROTOCOL, 1), (S.NO_RFC7540_PRIORITIES, 1)]
    side.feed(settings((0x7777, 2**32 - 1), (0, 0), *known))
    assert [e for e in side.effects() if e[0] != "ready"] == [("SETTINGS_ACK",)]
    assert side.conn.peer_max_list_size == 100


@pytest.mark.parametrize("make", [opened_server, opened_client])
def test_ping_is_acknowledged_and_acknowledgements_are_not(make):
    same_every_way(
        make,
        ping(b"abcdefgh") + ping(b"unasked.", ack=True) + frame(f.PING, 0xFE, 0, b"12345678"),
        [("PING_ACK", b"abcdefgh"), ("PING_ACK", b"12345678")],
    )


def test_goaway_with_debug_data_every_way():
    same_every_way(opened_server, goaway(0, E.NO_ERROR, b"good bye"), [("goaway", 0)])


def test_settings_acknowledgements_that_nobody_waits_for():
    same_every_way(opened_server, frame(f.SETTINGS, f.FLAG_ACK) * 3, [])

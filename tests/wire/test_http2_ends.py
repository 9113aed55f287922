"""How streams end: by either side first, by resets, and with the connection (RFC 9113 5.1, 5.4)."""

from __future__ import annotations

import pytest

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode

from .peer import (
    GET,
    OK,
    POST,
    SETTINGS_ACK,
    Side,
    block,
    data,
    frame,
    headers,
    play,
    rst,
    same_every_way,
    window_update,
)

TRAILERS = ((b"grpc-status", b"0"), (b"grpc-message", b"fine"))


def requesting(*, end: bool = True, fields=GET, no_body: bool = False):
    """Makes a client with one request sent, on stream 1."""

    def make() -> Side:
        side = Side(client=True)
        side.request(fields, end=end, no_body=no_body)
        side.effects()
        return side

    return make


def test_the_request_ends_first():
    side = Side()
    play(
        side,
        (headers(1, POST), [("request", 1, b"POST", b"/", False)]),
        (data(1, b"q", end=True), [("data", 1, b"q", True)]),
        (lambda: side.respond(1, OK, b"r", end=False),
         [("HEADERS", 1, OK, False), ("DATA", 1, b"r", False)]),
        (lambda: side.conn.send_trailers(side.stream(1), TRAILERS),
         [("closed", 1, http2.ENDED, 0), ("idle",), ("HEADERS", 1, TRAILERS, True)]),
    )  # fmt: skip
    assert not side.conn.streams


def test_the_response_ends_first():
    side = Side()
    play(
        side,
        (headers(1, POST), [("request", 1, b"POST", b"/", False)]),
        (lambda: side.respond(1), [("HEADERS", 1, OK, True)]),
        (data(1, b"still"), [("data", 1, b"still", False)]),
        (data(1, b"going", end=True),
         [("data", 1, b"going", True), ("closed", 1, http2.ENDED, 0), ("idle",)]),
    )  # fmt: skip


def test_the_response_ends_first_and_trailers_end_the_request():
    side = Side()
    side.feed(headers(1, POST))
    side.respond(1)
    side.effects()
    play(
        side,
        (headers(1, TRAILERS, end=True),
         [("trailers", 1, TRAILERS), ("closed", 1, http2.ENDED, 0), ("idle",)]),
    )  # fmt: skip


def test_a_response_that_is_complete_and_asks_to_stop_the_request():
    """RST_STREAM(NO_ERROR) after a whole response (8.1): the code comes along."""
    side = requesting(end=False, fields=POST)()
    side.feed(headers(1, OK) + data(1, b"no more", end=True) + rst(1, ErrorCode.NO_ERROR))
    assert side.effects() == [
        ("head", 1, 200, False),
        ("data", 1, b"no more", True),
        ("closed", 1, http2.RESET, 0),
        ("idle",),
    ]


def test_informational_heads_before_the_response():
    side = Side()
    side.feed(headers(1, POST))
    side.effects()
    early = ((b":status", b"100"),)
    side.conn.send_head(side.stream(1), early, (), False)
    side.respond(1, OK)
    assert side.effects() == [("HEADERS", 1, early, False), ("HEADERS", 1, OK, True)]


@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ErrorCode.CANCEL, http2.RESET),
        (ErrorCode.NO_ERROR, http2.RESET),
        (ErrorCode.REFUSED_STREAM, http2.REFUSED),
        (0xFFFFFFFF, http2.RESET),
    ],
)
def test_the_peer_resets(client, code, why):
    def make() -> Side:
        side = requesting(end=False, fields=POST)() if client else Side()
        if not client:
            side.feed(headers(1, POST))
            side.effects()
        return side

    same_every_way(make, rst(1, code), [("closed", 1, why, code), ("idle",)])


@pytest.mark.parametrize("client", [False, True])
def test_we_reset(client):
    """The owner that asks is not told. What was under way to us is let pass, and counted."""
    side = requesting(end=False, fields=POST)() if client else Side()
    if not client:
        side.feed(headers(1, POST))
        side.effects()
    stream = side.stream(1)
    window = side.conn.recv_window
    late = data(1, b"late") + window_update(1, 5) + window_update(1, 2**31 - 1)
    late += headers(1, TRAILERS if not client else OK, end=True) + rst(1)
    play(
        side,
        (lambda: side.conn.reset(stream, ErrorCode.CANCEL),
         [("idle",), ("RST_STREAM", 1, ErrorCode.CANCEL)]),
        (lambda: side.conn.reset(stream, ErrorCode.CANCEL), []),
        (late, []),
    )  # fmt: skip
    assert not side.owners[1].closed
    assert side.conn.recv_window == window - 4
    # Nothing can be sent on it any more, and that is no error.
    assert side.conn.send_data(stream, b"abc", True) == 3
    side.conn.send_trailers(stream, TRAILERS)
    side.conn.send_head(stream, OK, (), True)
    side.conn.consume(stream, 4)
    assert side.effects() == []


def test_the_field_table_stays_right_on_streams_that_were_reset():
    """A late header block changes the HPACK table all the same (4.3)."""
    insert = b"\x40" + b"\x01a\x01b"
    side = Side()
    side.feed(headers(1, POST))
    side.conn.reset(side.stream(1), ErrorCode.CANCEL)
    side.effects()
    side.feed(frame(f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_END_STREAM, 1, insert))
    side.feed(frame(f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_END_STREAM, 3, block(GET) + b"\xbe"))
    assert side.owners[3].head.fields == ((b"a", b"b"),)


def test_closed_streams_are_remembered_up_to_a_limit():
    side = Side(max_closed_streams=2)
    for stream_id in (1, 3, 5):
        side.feed(headers(stream_id, POST))
        side.conn.reset(side.stream(stream_id), ErrorCode.CANCEL)
    side.effects()
    side.feed(data(3, b"x") + data(5, b"x"))
    assert side.effects() == []
    side.feed(data(1, b"x"))
    assert side.effects() == [("RST_STREAM", 1, ErrorCode.STREAM_CLOSED)]


@pytest.mark.parametrize("client", [False, True])
def test_the_transport_is_lost(client):
    side = Side(client=client)
    for stream_id in (1, 3):
        if client:
            side.request(POST, end=False)
        else:
            side.feed(headers(stream_id, POST))
    side.send(1, b"x" * 100_000)
    side.effects()
    assert side.budget.total == 100_000 - 65_535
    side.conn.lost("gone")
    closed = [event for event in side.events if event[0] == "closed"]
    assert closed == [("closed", 1, http2.LOST, 0), ("closed", 3, http2.LOST, 0)]
    assert side.owners[1].stream.detail == "gone"
    side.check_invariants()
    assert side.budget.total == 0
    side.events.clear()
    side.feed(headers(5, GET, end=True))
    assert side.events == []


def test_abort_breaks_the_connection():
    side = Side()
    side.feed(headers(1, POST))
    side.effects()
    play(
        side,
        (lambda: side.conn.abort(ErrorCode.ENHANCE_YOUR_CALM, "too old", "stalled_connection"),
         [("count", "stalled_connection"), ("closed", 1, http2.LOST, 0), ("idle",),
          ("fault", ErrorCode.ENHANCE_YOUR_CALM), ("GOAWAY", 1, ErrorCode.ENHANCE_YOUR_CALM)]),
        (lambda: side.conn.abort(0, "again", "x"), []),
    )  # fmt: skip


def test_large_heads_are_continued():
    """A section above the peer's frame size goes out in CONTINUATION frames (6.10)."""
    side = Side()
    side.feed(headers(1, GET, end=True))
    side.effects()
    fields = (*OK, *((b"x-%d" % i, bytes((97 + i % 26,)) * 900) for i in range(60)))
    side.conn.send_head(side.stream(1), fields, (), True)
    octets = bytes(side.conn.out)
    assert octets[:4] == (16384).to_bytes(3, "big") + bytes((f.HEADERS,))
    assert octets[4] == f.FLAG_END_STREAM
    assert side.effects() == [
        ("closed", 1, http2.ENDED, 0),
        ("idle",),
        ("HEADERS", 1, fields, True),
    ]


def test_extra_fields_follow_the_encoded_ones():
    side = Side(client=True)
    extra = ((b"a", b"b"),)
    side.request(GET)
    side.effects()
    side.conn.open_stream(None, GET, extra, True, False)
    assert side.effects() == [("HEADERS", 3, (*GET, *extra), True)]


def test_identifiers_run_out():
    side = Side(client=True)
    assert not side.conn.exhausted
    try:
        side.conn.next_id = f.MAX_STREAM_ID
    except AttributeError:
        pytest.skip("compiled: the next identifier can't be set")
    assert not side.conn.exhausted
    assert side.request().id == f.MAX_STREAM_ID
    assert side.conn.exhausted
    side.feed(headers(f.MAX_STREAM_ID, OK, end=True))
    assert ("closed", f.MAX_STREAM_ID, http2.ENDED, 0) in side.events


def test_client_streams_are_odd_and_rise():
    side = Side(client=True)
    assert [side.request().id for _ in range(3)] == [1, 3, 5]
    assert SETTINGS_ACK not in side.take()

"""Requests and responses through one connection, both roles: heads, bodies, trailers, ends.

RFC 9113 section 8 for the messages, 5.1 for the states, 6.1 and 6.2 for padding.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode

from .peer import (
    GET,
    OK,
    POST,
    Effect,
    Side,
    block,
    chunks,
    data,
    frame,
    headers,
    padded,
    ping,
    same_every_way,
    settings,
)

TRAILERS = ((b"grpc-status", b"0"), (b"grpc-message", b"fine"))
PROTOCOL_ERROR = ErrorCode.PROTOCOL_ERROR


def with_length(fields, length: int):
    return (*fields, (b"content-length", str(length).encode()))


def requesting(*, end: bool = True, fields=GET, no_body: bool = False):
    """Makes a client with one request sent, on stream 1."""

    def make() -> Side:
        side = Side(client=True)
        side.request(fields, end=end, no_body=no_body)
        side.effects()
        return side

    return make


# --------------------------------------------------------------------------------- beginnings


def test_the_server_begins_with_settings():
    side = Side(ready=False)
    first, *rest = side.effects()
    limits = side.limits
    assert first == (
        "SETTINGS",
        {
            f.Setting.HEADER_TABLE_SIZE: limits.header_table_size,
            f.Setting.MAX_CONCURRENT_STREAMS: limits.max_concurrent_streams,
            f.Setting.INITIAL_WINDOW_SIZE: limits.initial_stream_window,
            f.Setting.MAX_FRAME_SIZE: limits.max_frame_size,
            f.Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_size,
            f.Setting.NO_RFC7540_PRIORITIES: 1,
            f.Setting.ENABLE_CONNECT_PROTOCOL: 1,
        },
    )
    assert rest == [("WINDOW_UPDATE", 0, limits.initial_connection_window - 65535)]


def test_the_client_begins_with_preface_and_settings():
    side = Side(client=True, ready=False)
    preface, (name, pairs), *_ = side.effects()
    assert (preface, name) == (("PREFACE",), "SETTINGS")
    assert pairs[f.Setting.ENABLE_PUSH] == 0
    assert f.Setting.MAX_CONCURRENT_STREAMS not in pairs


def test_preface_settings_and_a_request_at_once():
    def make() -> Side:
        side = Side(ready=False)
        side.effects()
        return side

    same_every_way(
        make,
        f.PREFACE + settings() + headers(1, GET, end=True),
        [("request", 1, b"GET", b"/", True), ("SETTINGS_ACK",)],
    )


def test_the_token_is_put_on_the_flush_list_once_a_turn():
    side = Side()
    side.feed(ping() + ping() + headers(1, GET, end=True))
    side.respond(1)
    assert side.flush_list == ["token"]
    assert side.conn.dirty
    side.effects()
    side.feed(ping())
    assert side.flush_list == ["token"]


# ----------------------------------------------------------------------------------- requests

REQUESTS: dict[str, tuple[bytes, list[Effect]]] = {
    "get": (
        headers(1, GET, end=True),
        [("request", 1, b"GET", b"/", True)],
    ),
    "body": (
        headers(1, POST) + data(1, b"one ") + data(1, b"two", end=True),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"one two", True)],
    ),
    "body and an empty end": (
        headers(1, POST) + data(1, b"one") + data(1, end=True),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"one", True)],
    ),
    "an empty body": (
        headers(1, POST) + data(1, end=True),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"", True)],
    ),
    "trailers": (
        headers(1, POST) + data(1, b"one") + headers(1, TRAILERS, end=True),
        [
            ("request", 1, b"POST", b"/", False),
            ("data", 1, b"one", False),
            ("trailers", 1, TRAILERS),
        ],
    ),
    "trailers without a body": (
        headers(1, POST) + headers(1, TRAILERS, end=True),
        [("request", 1, b"POST", b"/", False), ("trailers", 1, TRAILERS)],
    ),
    "content-length that is right": (
        headers(1, with_length(POST, 6)) + data(1, b"abc") + data(1, b"def", end=True),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"abcdef", True)],
    ),
    "content-length that is right, and trailers": (
        headers(1, with_length(POST, 3)) + data(1, b"abc") + headers(1, TRAILERS, end=True),
        [
            ("request", 1, b"POST", b"/", False),
            ("data", 1, b"abc", False),
            ("trailers", 1, TRAILERS),
        ],
    ),
    "content-length 0": (
        headers(1, with_length(POST, 0), end=True),
        [("request", 1, b"POST", b"/", True)],
    ),
    "two at once, mixed": (
        headers(1, POST) + headers(3, POST) + data(3, b"3", end=True) + data(1, b"1", end=True),
        [
            ("request", 1, b"POST", b"/", False),
            ("request", 3, b"POST", b"/", False),
            ("data", 3, b"3", True),
            ("data", 1, b"1", True),
        ],
    ),
    "identifiers may be left out": (
        headers(5, GET, end=True) + headers(99, GET, end=True),
        [("request", 5, b"GET", b"/", True), ("request", 99, b"GET", b"/", True)],
    ),
    "continued": (
        frame(f.HEADERS, f.FLAG_END_STREAM, 1, block(GET[:2]))
        + frame(f.CONTINUATION, 0, 1, b"")
        + frame(f.CONTINUATION, f.FLAG_END_HEADERS, 1, block(GET[2:])),
        [("request", 1, b"GET", b"/", True)],
    ),
    "continued within a field": (
        frame(f.HEADERS, f.FLAG_END_STREAM, 1, block(GET)[:7])
        + frame(f.CONTINUATION, f.FLAG_END_HEADERS, 1, block(GET)[7:]),
        [("request", 1, b"GET", b"/", True)],
    ),
    "padding": (
        frame(f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_PADDED, 1, padded(block(POST), 7))
        + frame(f.DATA, f.FLAG_PADDED, 1, padded(b"abc", 5))
        + frame(f.DATA, f.FLAG_PADDED, 1, padded(b"def", 0))
        + frame(f.DATA, f.FLAG_PADDED | f.FLAG_END_STREAM, 1, padded(b"ghi", 255)),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"abcdefghi", True)],
    ),
    "nothing but padding": (
        headers(1, POST)
        + frame(f.DATA, f.FLAG_PADDED, 1, padded(b"", 9))
        + frame(f.DATA, f.FLAG_PADDED | f.FLAG_END_STREAM, 1, padded(b"", 9)),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"", True)],
    ),
    "content-length does not count padding": (
        headers(1, with_length(POST, 3))
        + frame(f.DATA, f.FLAG_PADDED | f.FLAG_END_STREAM, 1, padded(b"abc", 20)),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"abc", True)],
    ),
    "priority fields and padding": (
        frame(
            f.HEADERS,
            f.FLAG_END_HEADERS | f.FLAG_PADDED | f.FLAG_PRIORITY | f.FLAG_END_STREAM,
            1,
            padded(b"\x80\0\0\3\x10" + block(GET), 3),
        ),
        [("request", 1, b"GET", b"/", True)],
    ),
    "flags that DATA does not have": (
        headers(1, POST) + frame(f.DATA, 0xF7 & ~f.FLAG_PADDED, 1, b"abc"),
        [("request", 1, b"POST", b"/", False), ("data", 1, b"abc", True)],
    ),
    "the reserved bit of the identifier": (
        headers(0x80000001, GET, end=True),
        [("request", 1, b"GET", b"/", True)],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_every_way(name):
    octets, expected = REQUESTS[name]
    same_every_way(Side, octets, expected)


@given(st.sampled_from(sorted(REQUESTS)), st.sets(st.integers(1, 400), max_size=12), st.booleans())
def test_request_at_any_splits(name, ends, late):
    octets, expected = REQUESTS[name]
    side = Side()
    for piece in chunks(octets, ends):
        side.feed(piece)
        side.check_invariants()
    if late:
        side.feed(ping(b"next one"))
        expected = [*expected, ("PING_ACK", b"next one")]
    assert side.effects() == expected


def test_data_is_handed_on_as_far_as_it_has_come():
    side = Side()
    side.feed(headers(1, POST) + data(1, b"abcdef")[:12])
    assert side.effects() == [("request", 1, b"POST", b"/", False), ("data", 1, b"abc", False)]


def test_the_head_of_equal_blocks_is_made_once():
    side = Side()
    side.feed(headers(1, GET, end=True) + headers(3, GET, end=True))
    assert side.owners[1].head is side.owners[3].head


# ---------------------------------------------------------------------------------- responses

RESPONSES: dict[str, tuple[bytes, list[Effect]]] = {
    "head only": (headers(1, OK, end=True), [("head", 1, 200, True)]),
    "body": (
        headers(1, OK) + data(1, b"a") + data(1, b"b", end=True),
        [("head", 1, 200, False), ("data", 1, b"ab", True)],
    ),
    "padding": (
        frame(f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_PADDED, 1, padded(block(OK), 1))
        + frame(f.DATA, f.FLAG_PADDED | f.FLAG_END_STREAM, 1, padded(b"ab", 2)),
        [("head", 1, 200, False), ("data", 1, b"ab", True)],
    ),
    "trailers": (
        headers(1, OK) + data(1, b"a") + headers(1, TRAILERS, end=True),
        [("head", 1, 200, False), ("data", 1, b"a", False), ("trailers", 1, TRAILERS)],
    ),
    "trailers and no body": (
        headers(1, OK) + headers(1, TRAILERS, end=True),
        [("head", 1, 200, False), ("trailers", 1, TRAILERS)],
    ),
    "informational": (
        headers(1, ((b":status", b"100"),))
        + headers(1, ((b":status", b"103"), (b"link", b"</x>")))
        + headers(1, OK, end=True),
        [("informational", 1, 100), ("informational", 1, 103), ("head", 1, 200, True)],
    ),
    "content-length": (
        headers(1, with_length(OK, 2)) + data(1, b"ab", end=True),
        [("head", 1, 200, False), ("data", 1, b"ab", True)],
    ),
    "304 with a content-length": (
        headers(1, with_length(((b":status", b"304"),), 99), end=True),
        [("head", 1, 304, True)],
    ),
    "204": (headers(1, ((b":status", b"204"),), end=True), [("head", 1, 204, True)]),
    "204 that ends with an empty DATA": (
        headers(1, ((b":status", b"204"),)) + data(1, end=True),
        [("head", 1, 204, False), ("data", 1, b"", True)],
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_response_every_way(name):
    octets, expected = RESPONSES[name]
    same_every_way(requesting(), octets, [*expected, ("closed", 1, http2.ENDED, 0), ("idle",)])


@pytest.mark.parametrize("name", RESPONSES)
def test_response_while_the_request_still_runs(name):
    """Half-closed (remote): the stream stays until our half ends, too."""
    octets, expected = RESPONSES[name]
    same_every_way(requesting(end=False, fields=POST), octets, expected)
    side = requesting(end=False, fields=POST)()
    side.feed(octets)
    side.effects()
    side.send(1, b"rest", end=True)
    assert side.effects() == [
        ("closed", 1, http2.ENDED, 0),
        ("idle",),
        ("DATA", 1, b"rest", True),
    ]
    assert not side.conn.streams


def test_response_to_head_has_a_length_and_no_body():
    same_every_way(
        requesting(no_body=True),
        headers(1, with_length(OK, 1000), end=True),
        [("head", 1, 200, True), ("closed", 1, http2.ENDED, 0), ("idle",)],
    )


# ------------------------------------------------------------------------- malformed messages


def violation(code: int = PROTOCOL_ERROR) -> list:
    return [("count", "protocol_error"), ("closed", 1, http2.VIOLATION, code), ("idle",)]


MALFORMED_BODIES = {
    "more than content-length": (with_length, 2, data(1, b"ab") + data(1, b"c"), b"ab"),
    "more in one frame": (with_length, 2, data(1, b"abc", end=True), b""),
    "less than content-length": (with_length, 4, data(1, b"abc") + data(1, end=True), b"abc"),
    "less, then trailers": (
        with_length, 4, data(1, b"abc") + headers(1, TRAILERS, end=True), b"abc",
    ),
    "content-length 0 and a body": (with_length, 0, data(1, b"a", end=True), b""),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED_BODIES)
@pytest.mark.parametrize("client", [False, True])
def test_body_that_differs_from_content_length(name, client):
    """A stream error in both roles (8.1.1). How much of it the owner saw depends on the reads."""
    change, length, octets, _ = MALFORMED_BODIES[name]
    for bytewise in (False, True):
        side = requesting()() if client else Side()
        start = headers(1, change(OK if client else POST, length))
        everything = start + octets
        pieces = chunks(everything, range(len(everything)) if bytewise else ())
        for piece in pieces:
            side.feed(piece)
            side.check_invariants()
        effects = side.effects()
        assert effects[-4:] == [*violation(), ("RST_STREAM", 1, PROTOCOL_ERROR)]
        seen = b"".join(effect[2] for effect in effects if effect[0] == "data")
        assert len(seen) <= length
        assert not side.owners[1].ended
        # The connection goes on, and what still comes on that stream is let pass.
        side.feed(data(1, b"late") + ping())
        assert side.effects() == [("PING_ACK", b"12345678")]


@pytest.mark.parametrize(
    "octets",
    [
        headers(1, OK) + data(1, b"body", end=True),
        headers(1, with_length(OK, 4)) + data(1, b"body", end=True),
    ],
    ids=["no length", "length"],
)
def test_response_to_head_with_a_body_is_malformed(octets):
    side = requesting(no_body=True)()
    side.feed(octets)
    effects = side.effects()
    assert not [effect for effect in effects if effect[0] == "data"]
    assert effects[-1] == ("RST_STREAM", 1, PROTOCOL_ERROR)


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_status_without_content_but_with_a_body_is_malformed(status):
    side = requesting()()
    side.feed(headers(1, ((b":status", status),)) + data(1, b"body", end=True))
    effects = side.effects()
    assert not [effect for effect in effects if effect[0] == "data"]
    assert effects[-1] == ("RST_STREAM", 1, PROTOCOL_ERROR)


MALFORMED_REQUESTS = {
    "no method": GET[1:],
    "upper-case name": (*GET, (b"X-Upper", b"1")),
    "pseudo-field after others": (GET[0], (b"a", b"b"), *GET[1:]),
    "twice": (*GET, (b":path", b"/")),
    "response pseudo-field": (*GET, (b":status", b"200")),
    "connection": (*GET, (b"connection", b"close")),
    "te": (*GET, (b"te", b"gzip")),
    "empty path": (*GET[:3], (b":path", b"")),
    "line feed in a value": (*GET, (b"a", b"b\nc")),
    "content-length that is no number": (*GET, (b"content-length", b"-1")),
    "content-lengths that differ": (*GET, (b"content-length", b"1"), (b"content-length", b"2")),
    ":protocol without CONNECT": ((b":method", b"GET"), (b":protocol", b"websocket"), *GET[1:]),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED_REQUESTS)
def test_malformed_request(name):
    """A stream error (8.1.1): the handler may answer first, and the connection goes on."""
    fields = MALFORMED_REQUESTS[name]
    same_every_way(
        Side,
        headers(1, fields, end=True),
        [
            ("count", "protocol_error"),
            ("bad_request", 1, "malformed_request"),
            ("idle",),
            ("RST_STREAM", 1, PROTOCOL_ERROR),
        ],
    )


def test_malformed_request_is_answered_before_the_reset():
    side = Side()
    side.answering = ((b":status", b"400"),)
    side.feed(headers(1, GET[1:]) + headers(3, GET, end=True))
    assert side.effects() == [
        ("count", "protocol_error"),
        ("bad_request", 1, "malformed_request"),
        ("idle",),
        ("request", 3, b"GET", b"/", True),
        ("HEADERS", 1, ((b":status", b"400"),), True),
        ("RST_STREAM", 1, PROTOCOL_ERROR),
    ]


def test_request_whose_length_announces_a_body_that_does_not_come():
    side = Side()
    side.feed(headers(1, with_length(POST, 5), end=True))
    assert ("bad_request", 1, "malformed_request") in side.events
    assert side.effects()[-1] == ("RST_STREAM", 1, PROTOCOL_ERROR)


MALFORMED_RESPONSES = {
    "no status": headers(1, ((b"a", b"b"),), end=True),
    "status 99": headers(1, ((b":status", b"99"),), end=True),
    "request pseudo-field": headers(1, ((b":status", b"200"), (b":path", b"/")), end=True),
    "status 101": headers(1, ((b":status", b"101"),)),
    "informational that ends the stream": headers(1, ((b":status", b"100"),), end=True),
    "DATA before the head": data(1, b"a"),
    "DATA after an informational head": headers(1, ((b":status", b"100"),)) + data(1, b"a"),
    "length without a body": headers(1, with_length(OK, 1), end=True),
    "upper-case name": headers(1, (*OK, (b"A", b"b")), end=True),
    "transfer-encoding": headers(1, (*OK, (b"transfer-encoding", b"chunked"))),
}


@pytest.mark.parametrize("name", MALFORMED_RESPONSES)
def test_malformed_response(name):
    side = requesting()()
    side.feed(MALFORMED_RESPONSES[name])
    effects = [effect for effect in side.effects() if effect[0] != "informational"]
    assert effects == [*violation(), ("RST_STREAM", 1, PROTOCOL_ERROR)]
    assert side.owners[1].stream.detail


MALFORMED_TRAILERS = {
    "without END_STREAM": headers(1, TRAILERS),
    "a pseudo-field": headers(1, ((b":status", b"200"),), end=True),
    "upper-case name": headers(1, ((b"A", b"b"),), end=True),
    "connection": headers(1, ((b"connection", b"b"),), end=True),
}


@pytest.mark.parametrize("client", [False, True])
@pytest.mark.parametrize("name", MALFORMED_TRAILERS)
def test_malformed_trailers(name, client):
    def make() -> Side:
        side = requesting()() if client else Side()
        side.feed(headers(1, OK if client else POST))
        side.effects()
        return side

    same_every_way(
        make, MALFORMED_TRAILERS[name], [*violation(), ("RST_STREAM", 1, PROTOCOL_ERROR)]
    )

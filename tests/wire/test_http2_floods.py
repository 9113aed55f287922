"""Limits on what a peer may make us do or keep: at the limit fine, one more is an end.

RFC 9113 section 10.5. Each limit is a key of ``[http2]`` with a counter of its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode
from gateway.wire.frames import Setting as S  # noqa: N817

from .peer import (
    GET,
    OK,
    POST,
    Side,
    block,
    chunks,
    data,
    frame,
    headers,
    padded,
    ping,
    play,
    rst,
    settings,
    window_update,
)

CALM = ErrorCode.ENHANCE_YOUR_CALM


def opened(**limits) -> Side:
    side = Side(**limits)
    side.feed(headers(1, POST))
    side.effects()
    return side


def number(i: int) -> int:
    return 2 * i + 3


# name: the key, the counter, the i-th frame
FLOODS: dict[str, tuple[str, str, Any]] = {
    "RST_STREAM after each request": (
        "max_resets", "reset_flood", lambda i: headers(number(i), GET, end=True) + rst(number(i))),
    "RST_STREAM again and again": ("max_resets", "reset_flood", lambda i: rst(1)),
    "malformed requests": (
        "max_induced_resets", "induced_reset_flood",
        lambda i: headers(number(i), GET[1:], end=True)),
    "WINDOW_UPDATE of 0": (
        "max_induced_resets", "induced_reset_flood",
        lambda i: headers(number(i), POST) + window_update(number(i), 0)),
    "DATA after the end": (
        "max_induced_resets", "induced_reset_flood",
        lambda i: headers(number(i), GET, end=True) + data(number(i), b"x")),
    "window overflows": (
        "max_induced_resets", "induced_reset_flood",
        lambda i: headers(number(i), POST) + window_update(number(i), f.MAX_WINDOW)),
    "DATA that does not match the length": (
        "max_induced_resets", "induced_reset_flood",
        lambda i: headers(number(i), (*POST, (b"content-length", b"1"))) + data(number(i), b"xx")),
    "empty DATA": ("max_empty_data", "empty_data_flood", lambda i: data(1)),
    "DATA that is all padding": (
        "max_empty_data", "empty_data_flood",
        lambda i: frame(f.DATA, f.FLAG_PADDED, 1, padded(b"", i))),
    "WINDOW_UPDATE on the connection": (
        "max_window_updates", "window_update_flood", lambda i: window_update(0, 1)),
    "WINDOW_UPDATE on a stream": (
        "max_window_updates", "window_update_flood", lambda i: window_update(1, 1)),
    "PRIORITY": (
        "max_ignored_frames", "priority_flood", lambda i: frame(f.PRIORITY, 0, 1, bytes(5))),
    "unknown frames": ("max_ignored_frames", "priority_flood", lambda i: frame(0x99, i)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_flood(name):
    key, counter, octets = FLOODS[name]
    side = opened(**{key: 5})
    for i in range(5):
        side.feed(octets(i))
        side.check_invariants()
    assert not side.conn.broken
    side.effects()
    side.feed(octets(5))
    effects = side.effects()
    assert ("count", counter) in effects
    assert effects[-1][0::2] == ("GOAWAY", CALM)
    assert ("fault", CALM) in effects
    side.check_invariants()


@pytest.mark.parametrize("name", FLOODS)
def test_the_same_frames_over_several_intervals_are_fine(name):
    key, _, octets = FLOODS[name]
    side = opened(**{key: 5}, flood_interval_s=10.0)
    for i in range(20):
        side.feed(octets(i), 10.0 * (i // 5) + i % 5)
    assert not side.conn.broken


def test_settings_flood():
    side = Side(max_settings=5)
    # One came with the preface.
    side.feed(settings() * 4)
    assert side.effects() == [("SETTINGS_ACK",)] * 4
    side.feed(settings())
    assert side.effects()[-1] == ("GOAWAY", 0, CALM)


def test_settings_with_very_many_entries():
    """Each INITIAL_WINDOW_SIZE walks all streams, so that a frame may not hold thousands."""
    for entries, fine in ((32, True), (33, False)):
        side = opened()
        side.feed(settings(*((S.INITIAL_WINDOW_SIZE, 100 + i) for i in range(entries))))
        effects = side.effects()
        if fine:
            assert effects == [("SETTINGS_ACK",)]
            assert side.stream(1).send_window == 100 + 31
        else:
            assert ("count", "settings_flood") in effects
            assert effects[-1] == ("GOAWAY", 1, CALM)


def test_ping_flood():
    side = Side(max_pings=5)
    # The first of a pause is taken for a measurement of the path.
    side.feed(ping() * 6)
    assert side.effects() == [("PING_ACK", b"12345678")] * 6
    side.feed(ping())
    effects = side.effects()
    assert ("count", "ping_flood") in effects
    assert effects[-1] == ("GOAWAY", 0, CALM)


def test_pings_that_measure_the_path_are_no_flood():
    """grpc-go sends one per round trip in which DATA came to it, for as long as it streams."""
    side = Side(max_pings=1)
    side.feed(headers(1, GET, end=True))
    side.respond(1, end=False)
    for _ in range(50):
        side.send(1, b"token")
        side.feed(ping())
    assert not side.conn.broken


def test_window_updates_that_answer_our_data_are_no_flood():
    """One for the stream and one for the connection after each of our DATA frames (h2, Go)."""
    side = Side(max_window_updates=1)
    side.feed(headers(1, GET, end=True))
    side.respond(1, end=False)
    for _ in range(50):
        side.send(1, b"token")
        side.feed(window_update(0, 5) + window_update(1, 5))
    assert not side.conn.broken
    side.feed(window_update(0, 5))
    assert not side.conn.broken
    side.feed(window_update(0, 5))
    assert side.effects()[-1] == ("GOAWAY", 1, CALM)


def test_data_with_data_or_an_end_is_no_flood():
    side = opened(max_empty_data=1)
    for i in range(20):
        side.feed(data(1, b"x") + headers(number(i), POST) + data(number(i), end=True))
        side.feed(frame(f.DATA, f.FLAG_PADDED, 1, padded(b"x", i)))
    assert not side.conn.broken


def test_resets_that_the_owner_asks_for_are_no_flood():
    """An upstream that fails many requests must not cost the client its connection."""
    side = Side(max_induced_resets=2, max_resets=2)
    for i in range(10):
        side.feed(headers(number(i), POST))
        side.conn.reset(side.stream(number(i)), ErrorCode.INTERNAL_ERROR)
    assert not side.conn.broken


def test_a_client_counts_no_resets():
    """A busy server may refuse as many requests as we send it."""
    side = Side(client=True, max_resets=1, max_induced_resets=1)
    for _ in range(5):
        stream = side.request(GET)
        side.feed(rst(stream.id, ErrorCode.REFUSED_STREAM))
    for _ in range(5):
        stream = side.request(GET)
        side.feed(data(stream.id, b"x"))
    assert not side.conn.broken


@pytest.mark.parametrize("name", ["empty DATA", "unknown frames", "WINDOW_UPDATE on a stream"])
def test_a_client_ends_floods_of_a_server(name):
    key, counter, octets = FLOODS[name]
    limits: dict[str, Any] = {key: 5}
    side = Side(client=True, **limits)
    side.request(GET)
    side.feed(headers(1, OK))
    side.effects()
    for i in range(20):
        side.feed(octets(i))
    effects = side.effects()
    assert ("count", counter) in effects
    assert effects[-1] == ("GOAWAY", 0, CALM)


# ---------------------------------------------------------------------------- field sections


def continued(parts: list[bytes], stream_id: int = 1) -> bytes:
    """A request head in one HEADERS frame and one CONTINUATION frame for each further part."""
    octets = frame(f.HEADERS, f.FLAG_END_STREAM, stream_id, parts[0])
    for i, part in enumerate(parts[1:], 2):
        flags = f.FLAG_END_HEADERS if i == len(parts) else 0
        octets += frame(f.CONTINUATION, flags, stream_id, part)
    return octets


def test_continuation_frames():
    whole = block(GET)
    for number_of, fine in ((4, True), (5, False)):
        side = Side(max_continuation_frames=4)
        side.feed(continued([whole, *[b""] * number_of]))
        effects = side.effects()
        if fine:
            assert effects == [("request", 1, b"GET", b"/", True)]
        else:
            assert ("count", "continuation_flood") in effects
            assert effects[-1] == ("GOAWAY", 0, CALM)


@pytest.mark.parametrize("parts", [1, 3])
def test_encoded_size_of_a_section(parts):
    limit = 2000
    filler = limit - len(block((*GET, (b"x", b""))))
    for excess, fine in ((0, True), (1, False)):
        # Values of up to 254 octets keep block() simple; the rest is one long literal.
        size = filler + excess - 2
        value = bytes((127,)) + bytes((((size - 127) & 0x7F) | 0x80, (size - 127) >> 7))
        octets = block(GET) + b"\0\x01x" + value + b"v" * size
        assert len(octets) == limit + excess
        side = Side(max_header_block=limit)
        cut = chunks(octets, [i * len(octets) // parts for i in range(1, parts)])
        if parts == 1:
            side.feed(frame(f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_END_STREAM, 1, octets))
        else:
            side.feed(continued(cut))
        effects = side.effects()
        if fine:
            assert effects == [("request", 1, b"GET", b"/", True)]
        else:
            assert ("count", "header_block_too_large") in effects
            assert effects[-1] == ("GOAWAY", 0, CALM)


def listed(fields) -> int:
    return sum(len(name) + len(value) + 32 for name, value in fields)


@pytest.mark.parametrize("end", [True, False])
def test_decoded_size_of_a_section(end):
    """Too large for us, not for HTTP/2: the request is refused, the connection goes on (10.5.1)."""
    fields = (*GET, *((b"x-%02d" % i, b"v" * 100) for i in range(10)))
    side = Side(max_header_list_size=listed(fields))
    side.feed(headers(1, fields, end=end))
    assert side.effects() == [("request", 1, b"GET", b"/", end)]

    side = Side(max_header_list_size=listed(fields) - 1)
    side.answering = ((b":status", b"431"),)
    side.feed(headers(1, fields, end=end))
    effects = side.effects()
    assert ("count", "header_list_too_large") in effects
    assert ("bad_request", 1, "headers_too_large") in effects
    assert ("HEADERS", 1, ((b":status", b"431"),), True) in effects
    side.feed(headers(3, GET, end=True))
    assert side.effects() == [("request", 3, b"GET", b"/", True)]
    side.check_invariants()


def test_number_of_fields():
    fields = (*GET, *((b"x-%02d" % i, b"v") for i in range(8)))
    side = Side(max_fields=12)
    side.feed(headers(1, fields, end=True))
    assert side.effects() == [("request", 1, b"GET", b"/", True)]
    side = Side(max_fields=11)
    side.feed(headers(1, fields, end=True) + headers(3, GET, end=True))
    effects = side.effects()
    assert ("count", "too_many_fields") in effects
    assert ("bad_request", 1, "headers_too_large") in effects
    assert ("request", 3, b"GET", b"/", True) in effects


def test_a_section_that_is_small_on_the_wire_and_large_when_decoded():
    """An HPACK bomb: one entry of 4000 octets, named a hundred times."""
    value = b"v" * 3900
    length = b"\x7f" + bytes((((3900 - 127) & 0x7F) | 0x80, (3900 - 127) >> 7))
    entry = b"\x40\x01x" + length + value
    side = Side()
    side.feed(
        frame(
            f.HEADERS,
            f.FLAG_END_HEADERS | f.FLAG_END_STREAM,
            1,
            block(GET) + entry + b"\xbe" * 100,
        )
    )
    assert ("bad_request", 1, "headers_too_large") in side.effects()
    side.feed(frame(f.HEADERS, 0x5, 3, block(GET) + b"\xbe"))
    assert side.owners[3].head.fields == ((b"x", value),)


def test_a_response_head_that_is_too_large():
    fields = (*OK, *((b"x-%02d" % i, b"v" * 100) for i in range(10)))
    side = Side(client=True, max_header_list_size=listed(fields) - 1)
    side.request(GET)
    side.request(GET)
    side.effects()
    side.feed(headers(1, fields) + headers(3, OK, end=True))
    effects = side.effects()
    assert ("closed", 1, http2.VIOLATION, CALM) in effects
    assert ("RST_STREAM", 1, CALM) in effects
    assert ("head", 3, 200, True) in effects


@pytest.mark.parametrize("client", [False, True])
def test_trailers_that_are_too_large(client):
    trailers = tuple((b"x-%02d" % i, b"v" * 100) for i in range(10))
    side = Side(client=client, max_header_list_size=1024)
    if client:
        side.request(GET)
    side.feed(headers(1, OK if client else POST) + headers(1, trailers, end=True))
    assert ("closed", 1, http2.VIOLATION, CALM) in side.effects()
    assert not side.conn.broken


# ------------------------------------------------------------------------ concurrent streams


def test_concurrent_streams():
    side = Side(max_concurrent_streams=2)
    side.feed(headers(1, POST) + headers(3, GET, end=True))
    side.effects()
    play(
        side,
        (headers(5, POST) + data(5, b"x") + headers(5, ((b"a", b"b"),), end=True),
         [("count", "concurrent_streams_exceeded"),
          ("RST_STREAM", 5, ErrorCode.REFUSED_STREAM)]),
        # Half-closed streams count (5.1.2); closed ones don't.
        (lambda: side.respond(3), [("closed", 3, http2.ENDED, 0), ("HEADERS", 3, OK, True)]),
        (headers(7, GET, end=True), [("request", 7, b"GET", b"/", True)]),
    )  # fmt: skip
    assert sorted(side.conn.streams) == [1, 7]


def test_streams_beyond_the_limit_again_and_again():
    side = Side(max_concurrent_streams=1, max_resets=5)
    side.feed(headers(1, POST))
    for i in range(5):
        side.feed(headers(number(i), GET, end=True))
    assert not side.conn.broken
    side.feed(headers(number(5), GET, end=True))
    assert side.effects()[-1][0::2] == ("GOAWAY", CALM)

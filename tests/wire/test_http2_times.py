"""Deadlines, by a simulated clock: ``deadline`` says when, ``check(now)`` acts."""

from __future__ import annotations

import pytest

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.flow import BDP_PING
from gateway.wire.frames import ErrorCode
from gateway.wire.frames import Setting as S  # noqa: N817

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
    ping,
    play,
    settings,
    window_update,
)

KEEPALIVE_PING = b"gw-alive"
NEVER = float("inf")


def broken(side: Side, at: float, code: int, counter: str) -> None:
    """Nothing happens before ``at``, and the connection breaks then."""
    assert side.conn.deadline <= at
    side.check(at - 0.001)
    assert not side.conn.broken
    assert side.conn.deadline <= at
    side.check(at)
    effects = side.effects()
    assert ("count", counter) in effects
    assert effects[-1][0::2] == ("GOAWAY", code)
    assert side.conn.deadline == NEVER


def test_an_idle_connection_has_no_deadline():
    side = Side()
    side.feed(headers(1, GET, end=True))
    side.respond(1, OK, b"body")
    side.check(5.0)
    assert side.conn.deadline == NEVER
    side = Side(client=True)
    side.check(5.0)
    assert side.conn.deadline == NEVER


# ------------------------------------------------------------------------------- the preface


@pytest.mark.parametrize(
    "octets",
    [b"", f.PREFACE[:1], f.PREFACE, f.PREFACE + settings()[:8], f.PREFACE + settings((1, 1))[:12]],
)
def test_preface_timeout(octets):
    side = Side(
        ready=False, now=100.0, preface_timeout_s=5.0, settings_timeout_s=99.0, header_timeout_s=99
    )
    side.feed(octets, 101.0)
    broken(side, 105.0, ErrorCode.PROTOCOL_ERROR, "preface_timeout")


def test_the_preface_in_time():
    side = Side(ready=False, preface_timeout_s=5.0, settings_timeout_s=99.0)
    side.feed(f.PREFACE + settings(), 4.9)
    side.check(50.0)
    assert not side.conn.broken


# ------------------------------------------------------------------------------ slow headers


@pytest.mark.parametrize(
    "octets",
    [
        headers(1, GET)[:4],
        headers(1, GET)[:12],
        frame(f.HEADERS, f.FLAG_END_STREAM, 1, block(GET)),
        frame(f.HEADERS, f.FLAG_END_STREAM, 1, block(GET)) + frame(f.CONTINUATION, 0, 1)[:3],
        ping()[:12],
    ],
)
def test_header_timeout(octets):
    side = Side(header_timeout_s=3.0)
    side.feed(octets, 10.0)
    broken(side, 13.0, ErrorCode.ENHANCE_YOUR_CALM, "header_timeout")


def test_trickling_does_not_lengthen_it():
    """A section with CONTINUATION frames has one deadline, not one for each frame."""
    side = Side(header_timeout_s=3.0)
    side.feed(frame(f.HEADERS, f.FLAG_END_STREAM, 1, block(GET)), 10.0)
    side.feed(frame(f.CONTINUATION, 0, 1, b""), 12.0)
    side.feed(frame(f.CONTINUATION, 0, 1, b"")[:5], 12.5)
    broken(side, 13.0, ErrorCode.ENHANCE_YOUR_CALM, "header_timeout")


def test_a_frame_byte_by_byte_has_one_deadline():
    side = Side(header_timeout_s=3.0)
    octets = headers(1, GET, end=True)
    for i in range(20):
        side.feed(octets[i : i + 1], 10.0 + i / 10)
    broken(side, 13.0, ErrorCode.ENHANCE_YOUR_CALM, "header_timeout")


def test_a_section_in_time():
    side = Side(header_timeout_s=3.0)
    octets = headers(1, GET, end=True)
    side.feed(octets[:9], 10.0)
    side.feed(octets[9:], 12.9)
    side.check(100.0)
    assert not side.conn.broken
    side.feed(octets[:3], 100.0)
    side.check(102.9)
    assert not side.conn.broken


def test_frames_that_end_within_reads_are_no_slow_headers():
    """Each frame that has begun has its own time, however long the traffic goes on."""
    side = Side(header_timeout_s=3.0)
    stream = ping() * 50
    for i in range(50):
        # Every read ends 3 octets into the next frame.
        side.feed(stream[17 * i + (3 if i else 0) : 17 * (i + 1) + 3], float(i))
        side.check(float(i))
    assert not side.conn.broken


def test_a_body_that_comes_slowly_is_no_slow_header():
    """Reads that end within DATA, after one that ended within its header."""
    side = Side(header_timeout_s=3.0)
    side.feed(headers(1, POST))
    body = data(1, bytes(1000)) * 50
    side.feed(body[:4], 0.0)
    for i in range(40):
        side.feed(body[4 + 1009 * i : 4 + 1009 * (i + 1)][:-4] if not i else
                  body[1009 * i : 1009 * (i + 1)], float(i + 1))  # fmt: skip
        side.check(float(i + 1))
    assert not side.conn.broken


# ----------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("client", [False, True])
def test_settings_timeout(client):
    side = Side(client=client, ready=False, now=50.0, settings_timeout_s=4.0)
    side.feed((b"" if client else f.PREFACE) + settings(), 51.0)
    side.effects()
    broken(side, 54.0, ErrorCode.SETTINGS_TIMEOUT, "settings_timeout")


def test_each_settings_frame_waits_for_its_own_acknowledgement():
    side = Side(settings_timeout_s=4.0, initial_stream_window=1000, max_stream_window=100_000)
    side.feed(headers(1, POST) + data(1, bytes(500)), 10.0)
    side.feed(data(1, bytes(900)), 10.1)
    side.feed(ping(BDP_PING, ack=True), 10.2)
    assert ("SETTINGS", {S.INITIAL_WINDOW_SIZE: 2000}) in side.effects()
    assert side.conn.deadline <= 14.2
    side.feed(SETTINGS_ACK, 14.1)
    side.check(14.2)
    assert not side.conn.broken
    assert side.conn.deadline == NEVER


# ----------------------------------------------------------------------------------- keepalive


def waiting(interval_s: float = 5.0, timeout_s: float = 1.0) -> Side:
    """A client with keepalive and one request, sent at 100 s."""
    side = Side(client=True, now=100.0)
    side.conn.keepalive_interval_s = interval_s
    side.conn.keepalive_timeout_s = timeout_s
    side.request(GET)
    side.effects()
    return side


def test_a_silent_server_is_pinged_and_then_given_up():
    side = waiting()
    assert side.conn.deadline == 105.0
    play(
        side,
        (lambda: side.check(104.9), []),
        (lambda: side.check(105.0), [("PING", KEEPALIVE_PING)]),
    )
    assert side.conn.deadline == 106.0
    broken(side, 106.0, ErrorCode.NO_ERROR, "keepalive_timeout")
    assert side.owners[1].closed == [(http2.LOST, 0)]


def test_anything_that_arrives_is_a_sign_of_life():
    side = waiting()
    side.check(105.0)
    side.effects()
    side.feed(settings(), 105.9)
    side.check(107.0)
    assert not side.conn.broken


def test_traffic_puts_the_ping_off():
    side = waiting()
    side.feed(headers(1, OK), 103.0)
    side.effects()
    side.check(105.0)
    assert side.effects() == []
    assert side.conn.deadline == 108.0
    side.check(108.0)
    assert side.effects() == [("PING", KEEPALIVE_PING)]


def test_no_pings_without_streams():
    side = waiting()
    side.feed(headers(1, OK, end=True), 101.0)
    side.effects()
    side.check(105.0)
    side.check(500.0)
    assert side.effects() == []
    assert side.conn.deadline == NEVER


def pinged(side: Side, at: float) -> bool:
    side.check(at)
    asked = ("PING", KEEPALIVE_PING) in side.effects()
    if asked:
        side.feed(ping(KEEPALIVE_PING, ack=True), at)
    return asked


def test_after_three_silent_pings_the_interval_is_301_seconds():
    """grpc servers count PINGs without HEADERS or DATA between them, and close the connection
    at the third strike unless they are five minutes apart (gRFC A8)."""
    side = waiting()
    assert [pinged(side, at) for at in (105.0, 110.0, 115.0)] == [True] * 3
    assert not any(pinged(side, at) for at in (116.0, 120.0, 200.0, 415.9))
    assert side.conn.deadline == 115.0 + 301.0
    assert pinged(side, 416.0)
    assert not any(pinged(side, at) for at in (417.0, 421.0, 716.9))
    assert side.conn.deadline == 416.0 + 301.0


def test_data_makes_the_pings_frequent_again():
    side = waiting()
    for at in (105.0, 110.0, 115.0):
        assert pinged(side, at)
    assert not pinged(side, 120.0)
    side.feed(headers(1, OK) + data(1, b"token"), 121.0)
    side.effects()
    side.check(121.0)
    assert side.conn.deadline <= 126.0
    assert pinged(side, 126.0)


def test_the_next_request_after_a_pause_waits_a_whole_interval():
    side = waiting()
    side.feed(headers(1, OK, end=True), 101.0)
    side.check(105.0)
    side.effects()
    side.now = 200.0
    side.check(200.0)
    side.request(GET)
    side.effects()
    assert side.conn.deadline <= 205.0
    side.check(204.9)
    assert side.effects() == []
    side.check(205.0)
    assert side.effects() == [("PING", KEEPALIVE_PING)]


# -------------------------------------------------------------------------------------- stalls


def stalled_server(**limits) -> Side:
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, 10),), stall_timeout_s=8.0, **limits)
    side.feed(headers(1, GET, end=True), 10.0)
    side.respond(1, OK, bytes(100))
    side.effects()
    return side


def until_stalled(side: Side, begin: float) -> float:
    """Check whenever asked to; when the stream was given up, or 1000 s later."""
    now = begin
    while now < begin + 1000.0 and side.conn.streams:
        assert side.conn.deadline < NEVER
        now = max(now, side.conn.deadline)
        side.check(now)
    return now


def test_a_stream_whose_peer_gives_no_window_is_given_up():
    side = stalled_server()
    at = until_stalled(side, 10.0)
    assert 8.0 <= at - 10.0 <= 8.0 * 1.5 + 0.01
    assert side.effects() == [
        ("count", "stalled_stream"),
        ("closed", 1, http2.STALLED, ErrorCode.CANCEL),
        ("idle",),
        ("RST_STREAM", 1, ErrorCode.CANCEL),
    ]
    assert side.budget.total == 0
    assert not side.conn.broken
    side.check(at + 100)
    assert side.conn.deadline == NEVER


def test_progress_begins_the_time_anew():
    side = stalled_server()
    for i in range(10):
        side.check(10.0 + 7 * i)
        side.feed(window_update(1, 1), 10.0 + 7 * i)
    assert side.conn.streams
    assert 8.0 <= until_stalled(side, 73.0) - 73.0 <= 12.01


def test_a_window_of_the_connection_that_stays_shut_counts_too():
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, f.MAX_WINDOW),), stall_timeout_s=8.0)
    side.feed(headers(1, GET, end=True), 10.0)
    side.respond(1, OK, bytes(100_000))
    assert until_stalled(side, 10.0) <= 22.01


def test_the_time_begins_when_the_stream_is_blocked():
    """A connection may have been quiet for long when a burst comes from upstream."""
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, 10),), stall_timeout_s=8.0)
    side.feed(headers(1, GET, end=True), 10.0)
    side.effects()
    side.respond(1, OK, bytes(100))
    side.check(500.0)
    assert side.conn.streams
    at = until_stalled(side, 500.0)
    assert at >= 508.0


def test_no_stall_timeout():
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, 10),), stall_timeout_s=None)
    side.feed(headers(1, GET, end=True), 10.0)
    side.respond(1, OK, bytes(100))
    side.check(1e6)
    assert side.conn.streams
    assert side.conn.deadline == NEVER


def test_a_stalled_client_upload():
    side = Side(client=True, peer_settings=((S.INITIAL_WINDOW_SIZE, 1),), stall_timeout_s=8.0)
    side.request(POST, end=False)
    side.send(1, bytes(10))
    side.effects()
    until_stalled(side, 0.0)
    assert side.owners[1].closed == [(http2.STALLED, ErrorCode.CANCEL)]

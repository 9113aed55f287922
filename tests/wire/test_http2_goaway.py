"""GOAWAY both ways (RFC 9113 section 6.8), the graceful end, and what it means for streams."""

from __future__ import annotations

import pytest

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode

from .peer import GET, OK, POST, Side, data, goaway, headers, ping, play, rst, same_every_way

DRAIN_PING = b"gw-drain"
FIRST = [("GOAWAY", f.MAX_STREAM_ID, 0), ("PING", DRAIN_PING)]


def three_requests() -> Side:
    side = Side(client=True)
    for _ in range(3):
        side.request(GET)
    side.effects()
    return side


# -------------------------------------------------------------------------------- as a client


def test_streams_above_the_last_are_refused_and_the_others_finish():
    same_every_way(
        three_requests,
        goaway(3, ErrorCode.NO_ERROR),
        [("goaway", 0), ("closed", 5, http2.REFUSED, 0)],
    )
    side = three_requests()
    side.feed(goaway(3))
    assert side.conn.going_away
    assert side.conn.draining
    side.effects()
    side.feed(headers(1, OK, end=True) + headers(3, OK) + data(3, b"ok", end=True))
    assert side.effects() == [
        ("head", 1, 200, True),
        ("closed", 1, http2.ENDED, 0),
        ("head", 3, 200, False),
        ("data", 3, b"ok", True),
        ("closed", 3, http2.ENDED, 0),
        ("idle",),
    ]


def test_frames_on_refused_streams_are_let_pass():
    side = three_requests()
    side.feed(goaway(1))
    side.effects()
    side.feed(headers(5, OK) + data(5, b"x") + rst(5))
    assert side.effects() == []


def test_graceful_in_two_steps_from_a_server():
    """The first GOAWAY names 2^31-1 and refuses nothing, the second names the last."""
    side = three_requests()
    play(
        side,
        (goaway(f.MAX_STREAM_ID), [("goaway", 0)]),
        (goaway(1), [("goaway", 0), ("closed", 3, http2.REFUSED, 0),
                     ("closed", 5, http2.REFUSED, 0)]),
    )  # fmt: skip


def test_an_error_comes_with_its_code():
    side = three_requests()
    side.feed(goaway(0, ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings"))
    assert side.effects() == [
        ("goaway", ErrorCode.ENHANCE_YOUR_CALM),
        *(("closed", i, http2.REFUSED, ErrorCode.ENHANCE_YOUR_CALM) for i in (1, 3, 5)),
        ("idle",),
    ]


def test_a_reset_while_being_refused():
    """An owner that resets its neighbour when it is refused: nobody is told twice."""
    side = three_requests()
    neighbour = side.stream(5)
    owner = side.owners[3]
    told = owner.response_closed

    def also_reset(why: int, code: int) -> None:
        told(why, code)
        side.conn.reset(neighbour, 8)

    owner.response_closed = also_reset  # type: ignore[method-assign]
    side.feed(goaway(1))
    assert side.effects() == [
        ("goaway", 0),
        ("closed", 3, http2.REFUSED, 0),
        ("RST_STREAM", 5, 8),
    ]
    side.check_invariants()


def test_a_client_ends_gracefully():
    side = three_requests()
    play(side, (lambda: side.conn.go_away(1.0), [("GOAWAY", 0, 0)]))
    assert side.conn.draining
    assert not side.conn.is_finished()
    side.feed(b"".join(headers(i, OK, end=True) for i in (1, 3, 5)))
    assert side.conn.is_finished()
    assert side.effects()[-1] == ("idle",)


# -------------------------------------------------------------------------------- as a server


def test_a_server_ends_gracefully_in_two_steps():
    side = Side()
    side.feed(headers(1, GET, end=True))
    side.effects()
    play(
        side,
        (lambda: side.conn.go_away(5.0), FIRST),
        (lambda: side.conn.go_away(5.0), []),
        # Under way before the client saw it: served.
        (headers(3, GET, end=True), [("request", 3, b"GET", b"/", True)]),
        (ping(DRAIN_PING, ack=True), [("GOAWAY", 3, 0)]),
        # After that: not processed, and not answered either.
        (headers(5, POST) + data(5, b"x") + headers(5, ((b"a", b"b"),), end=True), []),
        (headers(7, POST) + rst(7), []),
        (lambda: side.respond(1), [("closed", 1, http2.ENDED, 0), ("HEADERS", 1, OK, True)]),
    )  # fmt: skip
    assert not side.conn.is_finished()
    play(
        side,
        (lambda: side.respond(3),
         [("closed", 3, http2.ENDED, 0), ("idle",), ("HEADERS", 3, OK, True)]),
    )  # fmt: skip
    assert side.conn.is_finished()


def test_the_second_step_does_not_wait_for_the_client_longer_than_a_second():
    side = Side()
    side.conn.go_away(5.0)
    side.effects()
    assert side.conn.deadline == 6.0
    side.check(5.9)
    assert side.effects() == []
    side.check(6.0)
    assert side.effects() == [("idle",), ("GOAWAY", 0, 0)]
    assert side.conn.is_finished()
    side.feed(ping(DRAIN_PING, ack=True))
    assert side.effects() == []


def test_the_acknowledgement_of_the_drain_ping_alone_begins_nothing():
    side = Side()
    side.feed(ping(DRAIN_PING, ack=True))
    assert side.effects() == []
    assert not side.conn.draining


def test_the_last_stream_never_rises():
    """6.8: a later GOAWAY must not name a higher stream, even for an error."""
    side = Side()
    side.feed(headers(1, GET, end=True))
    side.conn.go_away(0.0)
    side.feed(ping(DRAIN_PING, ack=True) + headers(3, GET, end=True) + data(0, b""))
    goaways = [effect for effect in side.effects() if effect[0] == "GOAWAY"]
    assert goaways == [
        ("GOAWAY", f.MAX_STREAM_ID, 0),
        ("GOAWAY", 1, 0),
        ("GOAWAY", 1, ErrorCode.PROTOCOL_ERROR),
    ]


def test_a_client_that_goes_away_keeps_its_streams():
    side = Side()
    side.feed(headers(1, GET, end=True) + goaway(0))
    side.effects()
    assert side.conn.draining
    play(
        side,
        (lambda: side.respond(1),
         [("closed", 1, http2.ENDED, 0), ("idle",), ("HEADERS", 1, OK, True)]),
    )  # fmt: skip


@pytest.mark.parametrize("client", [False, True])
def test_going_away_when_broken_does_nothing(client):
    side = Side(client=client)
    side.feed(data(0, b""))
    side.effects()
    side.conn.go_away(1.0)
    assert side.effects() == []
    assert side.conn.is_finished()

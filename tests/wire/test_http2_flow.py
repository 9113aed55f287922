"""Flow control (RFC 9113 section 6.9): what waits, who goes next, what is given back and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import frames as f
from gateway.wire import http2
from gateway.wire.frames import ErrorCode
from gateway.wire.frames import Setting as S  # noqa: N817
from gateway.wire.http2 import HeldOctets

from .peer import (
    GET,
    OK,
    POST,
    Side,
    data,
    frame,
    headers,
    padded,
    ping,
    play,
    same_every_way,
    settings,
    window_update,
)

KIB = 1024
MIB = 1024 * KIB


def server(*streams: int, window: int = f.DEFAULT_WINDOW, **options) -> Side:
    """A server with open requests, whose response heads are sent."""
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, window),), **options)
    for stream_id in streams:
        side.feed(headers(stream_id, GET, end=True))
        side.respond(stream_id, end=False)
    side.effects()
    return side


def moved(effects) -> list[tuple[int, int]]:
    return [(e[1], len(e[2])) for e in effects if e[0] == "DATA"]


# ------------------------------------------------------------------------------------ sending


def test_the_window_of_a_stream_is_used_up_to_the_last_octet():
    side = server(1, window=10)
    play(
        side,
        (lambda: side.send(1, b"0123456"), [("DATA", 1, b"0123456", False)]),
        (lambda: side.send(1, b"789ab"), [("DATA", 1, b"789", False)]),
        (lambda: side.send(1, b"cd", end=True), []),
        (window_update(1, 3), [("drained", 1, 3), ("DATA", 1, b"abc", False)]),
        (window_update(1, 1),
         [("drained", 1, 1), ("closed", 1, http2.ENDED, 0), ("idle",), ("DATA", 1, b"d", True)]),
    )  # fmt: skip


def test_drained_comes_before_closed():
    side = server(1, window=1)
    side.send(1, b"ab", end=True)
    side.effects()
    side.feed(window_update(1, 1))
    assert [e[0] for e in side.events] == ["drained", "closed", "idle"]


def test_send_data_says_what_moved_at_once():
    side = server(1, window=10)
    assert side.send(1, b"0123456") == 7
    assert side.send(1, b"789ab") == 3
    assert side.send(1, b"c") == 0
    assert side.send(1, b"") == 0
    assert bytes(side.stream(1).pending) == b"abc"
    assert side.budget.total == 3


def test_the_window_of_the_connection_holds_for_all_streams():
    side = server(1, 3, window=MIB)
    assert side.send(1, bytes(60_000)) == 60_000
    assert side.send(3, bytes(10_000)) == 5535
    assert side.send(1, bytes(1)) == 0
    side.effects()
    side.feed(window_update(0, 4465))
    assert side.effects()[-1] == ("DATA", 3, bytes(4465), False)
    side.feed(window_update(0, 1))
    assert side.effects() == [("drained", 1, 1), ("DATA", 1, b"\0", False)]
    side.check_invariants()


def test_a_stream_without_window_does_not_stop_the_others():
    side = server(1, 3, window=5)
    side.feed(window_update(3, 1000))
    assert side.send(1, bytes(100)) == 5
    assert side.send(3, bytes(100)) == 100


def test_trailers_wait_behind_data():
    side = server(1, window=3)
    trailers = ((b"grpc-status", b"0"),)
    side.send(1, b"abcdef")
    side.conn.send_trailers(side.stream(1), trailers)
    assert side.effects() == [("DATA", 1, b"abc", False)]
    same = [
        ("drained", 1, 3),
        ("closed", 1, http2.ENDED, 0),
        ("idle",),
        ("DATA", 1, b"def", False),
        ("HEADERS", 1, trailers, True),
    ]
    play(side, (window_update(1, 3), same))


def test_a_client_drains_its_requests():
    side = Side(client=True, peer_settings=((S.INITIAL_WINDOW_SIZE, 2),))
    side.request(POST, end=False)
    side.send(1, b"abcd", end=True)
    side.effects()
    play(
        side,
        (window_update(1, 1), [("drained", 1, 1), ("DATA", 1, b"c", False)]),
        (headers(1, OK, end=True), [("head", 1, 200, True)]),
        (window_update(1, 1),
         [("drained", 1, 1), ("closed", 1, http2.ENDED, 0), ("idle",), ("DATA", 1, b"d", True)]),
    )  # fmt: skip


def test_a_reset_forgets_what_waits():
    side = server(1, window=1)
    side.send(1, bytes(100))
    assert side.budget.total == 99
    side.conn.reset(side.stream(1), ErrorCode.CANCEL)
    assert side.budget.total == 0
    side.effects()
    side.feed(window_update(0, 1000))
    assert side.effects() == []


@pytest.mark.parametrize("step", [1000, 16_384, 20_000])
def test_streams_share_a_window_that_opens_in_steps(step):
    """Whoever was served waits behind the others, or the first would have it all (and the
    others would end as stalled)."""
    side = server(1, 3, 5, window=MIB)
    for stream_id in (1, 3, 5):
        side.send(stream_id, bytes(300_000))
    side.effects()
    sent = {1: 0, 3: 0, 5: 0}
    for _ in range(12):
        side.feed(window_update(0, step))
        for stream_id, octets in moved(side.effects()):
            sent[stream_id] += octets
    assert sum(sent.values()) == 12 * step
    assert max(sent.values()) - min(sent.values()) <= 2 * 16_384
    assert min(sent.values()) > 0


def test_streams_share_a_window_that_opens_at_once():
    side = server(1, 3, window=MIB)
    side.send(1, bytes(200_000))
    side.send(3, bytes(200_000))
    side.effects()
    side.feed(window_update(0, 64 * KIB))
    assert moved(side.effects()) == [(1, 16_384), (3, 16_384)] * 2


def test_streams_share_an_out_buffer_that_drains_in_steps():
    side = server(1, 3, window=16 * MIB, max_connection_buffer=64 * KIB)
    side.feed(window_update(0, 16 * MIB))
    side.send(1, bytes(MIB))
    side.send(3, bytes(MIB))
    sent = {1: 0, 3: 0}
    parsed = b""
    while len(parsed) < MIB:
        parsed += side.take(48 * KIB)
    i = 0
    while i + 9 < len(parsed):
        length = int.from_bytes(parsed[i : i + 3], "big")
        sent[int.from_bytes(parsed[i + 5 : i + 9], "big")] += length
        i += 9 + length
    assert abs(sent[1] - sent[3]) <= 4 * 64 * KIB


# ---------------------------------------------------------------------------- the out-buffer


def test_data_stops_at_the_mark_of_the_out_buffer():
    side = server(1, window=16 * MIB, max_connection_buffer=64 * KIB)
    side.feed(window_update(0, 16 * MIB))
    assert side.take() == b""
    gone = side.send(1, bytes(MIB))
    assert 64 * KIB <= len(side.conn.out) <= 64 * KIB + 16_384 + 9
    assert gone <= 64 * KIB + 16_384
    assert side.budget.total == MIB - gone
    # Windows don't help while it is full.
    side.feed(window_update(0, 1000) + window_update(1, 1000))
    assert not [e for e in side.events if e[0] == "drained"]
    # Heads and control frames pass.
    side.feed(ping())
    assert bytes(side.conn.out).endswith(frame(f.PING, f.FLAG_ACK, 0, b"12345678"))


def test_it_is_filled_again_once_it_is_half_empty():
    side = server(1, window=16 * MIB, max_connection_buffer=64 * KIB)
    side.feed(window_update(0, 16 * MIB))
    side.send(1, bytes(MIB))
    full = len(side.conn.out)
    side.take(full - 40 * KIB)
    assert len(side.conn.out) == 40 * KIB
    side.take(10 * KIB)
    assert len(side.conn.out) >= 64 * KIB
    drained = [e for e in side.events if e[0] == "drained"]
    assert drained
    total = full
    while side.budget.total:
        total += len(side.take())
        side.check_invariants()
    assert total >= MIB


def test_the_process_holds_no_more_than_its_budget():
    """The stream that passes it is reset; the others of all connections go on."""
    budget = HeldOctets(1000)
    one = server(1, window=0, budget=budget)
    two = server(1, window=0, budget=budget)
    one.send(1, bytes(600))
    two.send(1, bytes(400))
    assert (one.effects(), two.effects()) == ([], [])
    two.send(1, bytes(1))
    assert two.effects() == [
        ("count", "process_buffer_limit"),
        ("closed", 1, http2.OVERFLOW, ErrorCode.ENHANCE_YOUR_CALM),
        ("idle",),
        ("RST_STREAM", 1, ErrorCode.ENHANCE_YOUR_CALM),
    ]
    assert budget.total == 600
    one.feed(window_update(1, 600))
    assert budget.total == 0


def test_overflows_are_no_fault_of_the_peer():
    """They come out of send_data, which another connection may be calling: nothing is raised."""
    side = server(1, 3, 5, window=0, budget=HeldOctets(0), max_induced_resets=1)
    for stream_id in (1, 3, 5):
        side.send(stream_id, b"x")
    assert not side.conn.broken


# ---------------------------------------------------------------------------------- receiving


def test_a_stream_window_that_is_exceeded():
    """6.9.1: a stream error. The octets count for the connection all the same."""
    side = Side(initial_stream_window=100, consuming=False)
    side.feed(headers(1, POST))
    side.effects()
    before = side.conn.recv_window
    play(
        side,
        (data(1, bytes(100)), [("data", 1, bytes(100), False)]),
        (data(1, b"x"),
         [("count", "flow_control_error"), ("count", "protocol_error"),
          ("closed", 1, http2.VIOLATION, ErrorCode.FLOW_CONTROL_ERROR), ("idle",),
          ("RST_STREAM", 1, ErrorCode.FLOW_CONTROL_ERROR)]),
    )  # fmt: skip
    assert side.conn.recv_window == before - 101
    assert side.conn.held == 0


def test_the_connection_window_that_is_exceeded():
    """6.9.1: a connection error, on whatever stream."""
    limits: dict[str, Any] = {
        "initial_stream_window": MIB,
        "max_stream_window": MIB,
        "initial_connection_window": 65_535,
        "max_connection_window": 65_535,
        "max_frame_size": MIB,
    }
    side = Side(consuming=False, **limits)
    side.feed(headers(1, POST) + headers(3, POST))
    side.effects()
    # Given back at once as long as no more than max_connection_window is held.
    side.feed(data(1, bytes(65_535)))
    assert ("WINDOW_UPDATE", 0, 65_535) in side.effects()
    side.feed(data(1, b"x"))
    assert side.conn.held == 65_536
    side.feed(data(3, bytes(65_534)))
    assert [e for e in side.effects() if e[0] == "WINDOW_UPDATE"] == []
    side.feed(data(3, b"y"))
    assert side.effects()[-1] == ("GOAWAY", 3, ErrorCode.FLOW_CONTROL_ERROR)


def test_withheld_credit_comes_back_when_octets_move_on():
    side = Side(
        consuming=False,
        initial_stream_window=MIB,
        max_stream_window=MIB,
        initial_connection_window=65_535,
        max_connection_window=65_535,
        max_frame_size=MIB,
    )
    side.feed(headers(1, POST) + headers(3, POST))
    side.feed(data(1, bytes(65_535)) + data(1, b"x") + data(3, bytes(60_000)))
    side.effects()
    assert side.conn.recv_window == 65_535 - 60_001
    side.conn.consume(side.stream(1), 60_001)
    assert ("WINDOW_UPDATE", 0, 60_001) in side.effects()
    assert side.conn.recv_window == 65_535
    side.check_invariants()


def test_withheld_credit_comes_back_when_a_stream_ends():
    side = Side(
        consuming=False,
        initial_stream_window=MIB,
        max_stream_window=MIB,
        initial_connection_window=65_535,
        max_connection_window=65_535,
        max_frame_size=MIB,
    )
    side.feed(headers(1, POST) + headers(3, POST))
    side.feed(data(1, bytes(65_535)) + data(1, b"x") + data(3, bytes(60_000)))
    side.effects()
    side.conn.reset(side.stream(1), ErrorCode.CANCEL)
    assert ("WINDOW_UPDATE", 0, 60_001) in side.effects()
    side.check_invariants()


def test_a_client_gives_the_connection_window_back_at_once():
    """One stalled stream must not stop its neighbours on an upstream connection."""
    side = Side(
        client=True,
        consuming=False,
        initial_stream_window=MIB,
        max_stream_window=MIB,
        initial_connection_window=65_535,
        max_connection_window=65_535,
        max_frame_size=MIB,
    )
    side.request(GET)
    side.feed(headers(1, OK))
    for _ in range(10):
        side.feed(data(1, bytes(50_000)))
    assert side.conn.held == 500_000
    assert side.conn.recv_window > 65_535 // 2
    assert not side.conn.broken


def test_a_stream_gets_credit_only_for_what_was_consumed():
    side = Side(consuming=False, initial_stream_window=1000, max_stream_window=1000)
    side.feed(headers(1, POST) + data(1, bytes(1000)))
    side.effects()
    stream = side.stream(1)
    assert (stream.held, stream.recv_window) == (1000, 0)
    play(
        side,
        (lambda: side.conn.consume(stream, 499), []),
        (lambda: side.conn.consume(stream, 1), [("WINDOW_UPDATE", 1, 500)]),
    )
    assert (stream.held, stream.recv_window) == (500, 500)


def test_no_credit_for_a_stream_that_the_peer_ended():
    side = Side(consuming=False, initial_stream_window=1000)
    side.feed(headers(1, POST) + data(1, bytes(1000), end=True))
    side.effects()
    side.conn.consume(side.stream(1), 1000)
    assert side.effects() == []
    assert side.conn.held == 0


def test_padding_is_given_back_by_itself():
    side = Side(consuming=False, initial_stream_window=400, max_stream_window=400)
    side.feed(headers(1, POST))
    side.effects()
    side.feed(frame(f.DATA, f.FLAG_PADDED, 1, padded(b"abc", 255)))
    assert side.effects() == [("data", 1, b"abc", False), ("WINDOW_UPDATE", 1, 256)]
    stream = side.stream(1)
    assert (stream.held, stream.recv_window) == (3, 397)


def test_half_a_frame_is_held_until_the_rest_comes():
    side = Side(consuming=True)
    side.feed(headers(1, POST) + data(1, bytes(100))[:59])
    assert side.owners[1].received == 50
    assert side.conn.held == side.stream(1).held == 50
    side.check_invariants()


def test_octets_consumed_after_the_end_change_nothing():
    side = Side(consuming=False)
    side.feed(headers(1, POST) + data(1, bytes(10)))
    stream = side.stream(1)
    side.conn.reset(stream, ErrorCode.CANCEL)
    side.effects()
    side.conn.consume(stream, 10)
    assert side.effects() == []
    assert side.conn.held == 0


@given(st.lists(st.tuples(st.sampled_from([1, 3]), st.integers(1, 300)), max_size=60), st.data())
def test_windows_add_up(writes, choices):
    """Of each stream: window + held + not yet announced is what it started with."""
    side = Side(consuming=False, initial_stream_window=1000, max_stream_window=1000)
    side.feed(headers(1, POST) + headers(3, POST))
    granted = {1: 1000, 3: 1000}
    for stream_id, octets in writes:
        stream = side.stream(stream_id)
        if octets <= granted[stream_id]:
            side.feed(data(stream_id, bytes(octets)))
            granted[stream_id] -= octets
        if stream.held:
            side.conn.consume(stream, choices.draw(st.integers(0, stream.held)))
        for effect in side.written():
            if effect[0] == "WINDOW_UPDATE" and effect[1]:
                granted[effect[1]] += effect[2]
        assert granted[stream_id] == stream.recv_window
        assert stream.recv_window + stream.held <= 1000
        assert 2 * (1000 - stream.recv_window - stream.held) < 1000
        side.check_invariants()
    assert not side.conn.broken


def test_window_update_in_every_way():
    def make() -> Side:
        side = server(1, window=2)
        side.send(1, b"abcdef")
        side.effects()
        return side

    same_every_way(
        make,
        window_update(0, 10) + window_update(1, 2) + settings(),
        [("drained", 1, 2), ("DATA", 1, b"cd", False), ("SETTINGS_ACK",)],
    )

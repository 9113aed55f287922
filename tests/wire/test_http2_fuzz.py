"""Octets that no peer in its right mind sends. Whatever they are: no exception, sane counts, and
either a connection that works or a GOAWAY with a code that says why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.wire import frames as f
from gateway.wire.flow import BDP_PING

from .peer import (
    GET,
    OK,
    POST,
    SETTINGS_ACK,
    Side,
    block,
    chunks,
    data,
    frame,
    goaway,
    headers,
    padded,
    ping,
    rst,
    window_update,
)
from .peer import settings as settings_frame

stream_ids = st.one_of(st.integers(0, 9), st.sampled_from([11, 13, 2**31 - 1, 2**31, 2**32 - 1]))
numbers = st.one_of(st.integers(0, 3), st.sampled_from([2**16, 2**31 - 1, 2**31, 2**32 - 1]))
sections = st.sampled_from(
    [
        block(GET),
        block(POST),
        block(OK),
        block(GET[1:]),
        block(((b"grpc-status", b"0"),)),
        block((*POST, (b"content-length", b"3"))),
        block((*OK, (b"content-length", b"3"))),
        block(((b":status", b"100"),)),
        b"\x40\x01a\x01b",
        b"\xbe",
        b"\x20",
        b"",
    ]
)
any_frame = st.one_of(
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), stream_ids, st.binary(max_size=40)),
    st.builds(frame, st.just(f.HEADERS), st.sampled_from([0, 1, 4, 5, 0x2D]), stream_ids, sections),
    st.builds(frame, st.just(f.CONTINUATION), st.sampled_from([0, 4]), stream_ids, sections),
    st.builds(headers, stream_ids, st.sampled_from([GET, POST, OK])),
    st.builds(data, stream_ids, st.binary(max_size=30), end=st.booleans()),
    st.builds(
        lambda i, octets, padding, flags: frame(f.DATA, flags, i, padded(octets, padding)),
        stream_ids,
        st.binary(max_size=9),
        st.integers(0, 255),
        st.sampled_from([f.FLAG_PADDED, f.FLAG_PADDED | f.FLAG_END_STREAM]),
    ),
    st.builds(rst, stream_ids, numbers),
    st.builds(window_update, stream_ids, numbers),
    st.builds(
        lambda pairs: settings_frame(*pairs),
        st.lists(st.tuples(st.integers(0, 10), numbers), max_size=4),
    ),
    st.builds(ping, st.sampled_from([b"gw-alive", b"gw-drain", BDP_PING]), ack=st.booleans()),
    st.builds(goaway, stream_ids, numbers, st.binary(max_size=9)),
    st.just(SETTINGS_ACK),
)


@st.composite
def mutated(draw) -> bytes:
    """Frames, some octets of which were changed, dropped or doubled."""
    octets = bytearray(b"".join(draw(st.lists(any_frame, min_size=1, max_size=12))))
    for _ in range(draw(st.integers(0, 4))):
        i = draw(st.integers(0, max(0, len(octets) - 1)))
        change = draw(st.integers(0, 2))
        if not octets:
            break
        if change == 0:
            octets[i] = draw(st.integers(0, 255))
        elif change == 1:
            del octets[i : i + draw(st.integers(1, 20))]
        else:
            octets[i:i] = octets[i : i + draw(st.integers(1, 20))]
    return bytes(octets)


hostile = st.one_of(
    st.binary(max_size=300), st.lists(any_frame, max_size=25).map(b"".join), mutated()
)


class Answering(Side):
    """A server that answers at once, in one of a few ways, and a client that goes on asking."""

    manner = 0

    def on_request(self, stream, head) -> None:
        super().on_request(stream, head)
        if self.manner == 1:
            self.respond(stream.id, OK, b"x" * 50)
        elif self.manner == 2:
            self.conn.reset(stream, 8)
        elif self.manner == 3:
            self.respond(stream.id, OK, b"x" * 70_000, end=False)

    def on_bad_request(self, stream, kind, detail) -> None:
        super().on_bad_request(stream, kind, detail)
        if self.manner == 2:
            self.conn.reset(stream, 8)
        elif self.manner:
            self.conn.send_head(stream, ((b":status", b"400"),), (), self.manner == 1)


SMALL: dict[str, Any] = {
    "initial_stream_window": 64,
    "max_stream_window": 200,
    "max_header_list_size": 1024,
    "max_fields": 8,
    "max_header_block": 1024,
    "max_continuation_frames": 2,
    "max_concurrent_streams": 3,
    "max_closed_streams": 2,
}

DEFAULT: dict[str, Any] = {}


def attack(side: Side, octets: bytes, ends) -> None:
    now = 1.0
    for piece in chunks(octets, ends):
        now += 0.5
        side.feed(piece, now)
        side.check_invariants()
        if side.conn.deadline <= now:
            side.check(now)
        side.written()
        side.check_invariants()
    event("broken" if side.conn.broken else "alive")
    faults = [e for e in side.events if e[0] == "fault"]
    assert len(faults) == bool(side.conn.broken)
    side.check(now + 1e6)
    side.check_invariants()
    ended_by_us = {e[1] for e in side.events if e[0] == "reset"}
    side.conn.lost("over")
    assert side.conn.held == 0
    assert side.budget.total == 0
    assert not side.conn.streams
    for owner in side.owners.values():
        assert len(owner.closed) <= 1
        assert not owner.stream.open
        if getattr(side, "manner", 0) == 0 and owner.stream.id not in ended_by_us:
            refused = ("bad_request", owner.stream.id, "malformed_request") in side.events
            assert len(owner.closed) == (0 if refused else 1)


@settings(max_examples=400, deadline=None)
@given(
    hostile,
    st.sets(st.integers(1, 300), max_size=8),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_a_server_takes_anything(octets, ends, manner, small, consuming):
    side = Answering(consuming=consuming, **(SMALL if small else DEFAULT))
    side.manner = manner
    attack(side, octets, ends)


@settings(max_examples=400, deadline=None)
@given(hostile, st.sets(st.integers(1, 300), max_size=8), st.booleans(), st.booleans())
def test_a_client_takes_anything(octets, ends, small, consuming):
    side = Side(client=True, consuming=consuming, **(SMALL if small else DEFAULT))
    side.request(GET)
    side.request(POST, end=False)
    side.request(GET, no_body=True)
    side.send(3, bytes(70_000), end=True)
    side.written()
    attack(side, octets, ends)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.sets(st.integers(1, 80), max_size=4))
def test_anything_in_place_of_the_preface(octets, ends):
    side = Side(ready=False)
    attack(side, octets, ends)


@settings(max_examples=200, deadline=None)
@given(hostile, st.sets(st.integers(1, 300), max_size=8))
def test_where_reads_end_changes_nothing(octets, ends):
    """The same octets have the same effects in one read and in many."""
    seen = []
    for cut in ([octets], chunks(octets, ends), chunks(octets, range(len(octets)))):
        side = Side()
        for piece in cut:
            side.feed(piece)
        effects = side.effects()
        fault = [e for e in effects if e[0] == "fault"]
        # How much of a body that proves wrong was handed on may differ, and the order of
        # events on different streams around it does not matter.
        seen.append((fault, [e for e in effects if e[0] not in ("data", "WINDOW_UPDATE")]))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("kind", range(12))
@pytest.mark.parametrize("client", [False, True])
def test_every_type_with_every_flag_on_every_stream(kind, client):
    """A grid, so that no corner is left to luck."""
    for flags in range(256):
        for stream_id in (0, 1, 2, 3, 5):
            for payload in (b"", b"\0", bytes(4), bytes(5), bytes(6), bytes(8), block(GET)):
                side = Side(client=client)
                if client:
                    side.request(GET)
                    side.request(POST, end=False)
                else:
                    side.feed(headers(1, GET, end=True) + headers(3, POST))
                if flags % 8 == 0:
                    side.feed(frame(kind, flags, stream_id, payload)[:5])
                    side.feed(frame(kind, flags, stream_id, payload)[5:] + ping())
                else:
                    side.feed(frame(kind, flags, stream_id, payload) + ping())
                side.check_invariants()
                continuing = kind == f.HEADERS and not flags & f.FLAG_END_HEADERS
                alive = not side.conn.broken
                answered = b"12345678" in side.conn.out
                assert alive == answered, (flags, stream_id, payload, continuing)

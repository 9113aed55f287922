"""Conversations with the h2 library, in both roles and cut at any place."""

from __future__ import annotations

import h2.events
import h2.settings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import http2

from .peer import GET, OK, POST, Library, Side, chunks, converse

TRAILERS = ((b"grpc-status", b"0"),)

# Fields that both ends take: lower-case names, values without edges of white space.
names = st.from_regex(rb"x-[a-z0-9-]{1,12}", fullmatch=True)
values = st.from_regex(rb"([!-~]([ -~]{0,20}[!-~])?)?", fullmatch=True)
more_fields = st.lists(st.tuples(names, values), max_size=6).map(tuple)
bodies = st.lists(st.integers(0, 70_000), max_size=4)
cuts = st.one_of(
    st.none(), st.just("bytes"), st.lists(st.integers(1, 3000), min_size=1, max_size=20)
)


def cutter(how):
    """A way to cut what is carried: whole, byte by byte, or in pieces of given lengths in turn."""
    if how is None:
        return None

    def cut(octets: bytes) -> list[bytes]:
        if how == "bytes":
            # So much of it byte by byte, or a large body takes for ever.
            return chunks(octets, range(2000))
        ends, i, turn = [], 0, 0
        while i < len(octets):
            i += how[turn % len(how)]
            turn += 1
            ends.append(i)
            if turn > 3000:
                break
        return chunks(octets, ends)

    return cut


def pattern(octets: int, seed: int) -> bytes:
    return bytes((seed * 31 + i) & 0xFF for i in range(251)) * (octets // 251 + 1)


def body_of(sizes, seed: int) -> list[bytes]:
    return [pattern(size, seed + i)[:size] for i, size in enumerate(sizes)]


def library_sends(library: Library, pieces: dict[int, list[bytes]], trailers: dict[int, bool]):
    """Send what the windows allow of each stream's pieces; true when all is gone."""
    conn = library.conn
    for stream_id, waiting in pieces.items():
        while waiting:
            most = min(conn.local_flow_control_window(stream_id), conn.max_outbound_frame_size)
            piece = waiting[0]
            last = len(waiting) == 1 and len(piece) <= most
            ends = last and not trailers[stream_id]
            if piece and most <= 0:
                break
            conn.send_data(stream_id, piece[:most] if piece else b"", end_stream=ends)
            if len(piece) <= most or not piece:
                waiting.pop(0)
            else:
                waiting[0] = piece[most:]
            if last and trailers[stream_id]:
                conn.send_headers(stream_id, list(TRAILERS), end_stream=True)
    return not any(pieces.values())


exchanges = st.lists(
    st.tuples(more_fields, bodies, st.booleans(), more_fields, bodies, st.booleans()),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(exchanges, cuts)
def test_h2_as_client(all_exchanges, how):
    """Every request and response arrives whole, with its fields, body, trailers and one end."""
    side = Side(ready=False)
    library = Library(client=True)
    cut = cutter(how)
    converse(side, library, cut)
    pieces, trailers = {}, {}
    for i, (fields, sizes, with_trailers, _, _, _) in enumerate(all_exchanges):
        stream_id = 2 * i + 1
        body = body_of(sizes, i)
        empty = not body and not with_trailers
        library.conn.send_headers(stream_id, [*POST, *fields], end_stream=empty)
        pieces[stream_id] = body or ([] if empty else [b""])
        trailers[stream_id] = with_trailers
    while not library_sends(library, pieces, trailers):
        converse(side, library, cut)
    converse(side, library, cut)
    for i, (fields, sizes, with_trailers, answer, sizes_back, trailers_back) in enumerate(
        all_exchanges
    ):
        stream_id = 2 * i + 1
        owner = side.owners[stream_id]
        assert owner.head.fields == fields
        assert bytes(owner.body) == b"".join(body_of(sizes, i))
        assert owner.ended
        assert (("trailers", stream_id, TRAILERS) in side.events) == with_trailers
        side.conn.send_head(owner.stream, (*OK, *answer), (), False)
        for piece in body_of(sizes_back, 100 + i):
            side.conn.send_data(owner.stream, piece, False)
        if trailers_back:
            side.conn.send_trailers(owner.stream, TRAILERS)
        else:
            side.conn.send_data(owner.stream, b"", True)
    converse(side, library, cut)
    heads = {e.stream_id: e.headers for e in library.of(h2.events.ResponseReceived)}
    for i, (_, _, _, answer, sizes_back, trailers_back) in enumerate(all_exchanges):
        stream_id = 2 * i + 1
        assert tuple((bytes(n), bytes(v)) for n, v in heads[stream_id]) == (*OK, *answer)
        whole = b"".join(body_of(sizes_back, 100 + i))
        assert bytes(library.bodies.get(stream_id, b"")) == whole
        seen = [e for e in library.of(h2.events.TrailersReceived) if e.stream_id == stream_id]
        assert bool(seen) == trailers_back
        assert side.owners[stream_id].closed == [(http2.ENDED, 0)]
    assert len(library.of(h2.events.StreamEnded)) == len(all_exchanges)
    finished(side)


@settings(max_examples=60, deadline=None)
@given(exchanges, cuts)
def test_h2_as_server(all_exchanges, how):
    side = Side(client=True, ready=False)
    library = Library(client=False)
    cut = cutter(how)
    converse(side, library, cut)
    for i, (fields, sizes, with_trailers, _, _, _) in enumerate(all_exchanges):
        stream = side.request((*POST, *fields), end=False)
        for piece in body_of(sizes, i):
            side.conn.send_data(stream, piece, False)
        if with_trailers:
            side.conn.send_trailers(stream, TRAILERS)
        else:
            side.conn.send_data(stream, b"", True)
    converse(side, library, cut)
    heads = {e.stream_id: e.headers for e in library.of(h2.events.RequestReceived)}
    pieces, trailers = {}, {}
    for i, (fields, sizes, _, answer, sizes_back, trailers_back) in enumerate(all_exchanges):
        stream_id = 2 * i + 1
        assert tuple((bytes(n), bytes(v)) for n, v in heads[stream_id]) == (*POST, *fields)
        assert bytes(library.bodies.get(stream_id, b"")) == b"".join(body_of(sizes, i))
        body = body_of(sizes_back, 100 + i)
        empty = not body and not trailers_back
        library.conn.send_headers(stream_id, [*OK, *answer], end_stream=empty)
        pieces[stream_id] = body or ([] if empty else [b""])
        trailers[stream_id] = trailers_back
    while not library_sends(library, pieces, trailers):
        converse(side, library, cut)
    converse(side, library, cut)
    for i, (_, _, _, answer, sizes_back, trailers_back) in enumerate(all_exchanges):
        owner = side.owners[2 * i + 1]
        assert owner.head.fields == answer
        assert bytes(owner.body) == b"".join(body_of(sizes_back, 100 + i))
        assert owner.closed == [(http2.ENDED, 0)]
        assert (("trailers", 2 * i + 1, TRAILERS) in side.events) == trailers_back
    finished(side)


def finished(side: Side) -> None:
    assert not side.conn.broken
    assert not side.conn.streams
    assert side.conn.held == 0
    assert side.budget.total == 0
    assert not [event for event in side.events if event[0] in ("count", "fault")]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=5),
    st.lists(st.integers(100, 70_000), min_size=1, max_size=6),
    st.lists(st.sampled_from([16_384, 20_000, 65_536]), min_size=1, max_size=6),
)
def test_settings_that_change_while_bodies_are_sent(windows, more, sizes):
    """h2 applies its settings when it reads our acknowledgement: what we send must fit then."""
    side = Side(ready=False)
    library = Library(client=True, consuming=False)
    converse(side, library)
    for stream_id in (1, 3):
        library.conn.send_headers(stream_id, list(GET), end_stream=True)
    converse(side, library)
    for stream_id in (1, 3):
        side.respond(stream_id, OK, pattern(100_000, stream_id)[:100_000])
    for i, window in enumerate(windows):
        library.conn.update_settings(
            {
                h2.settings.SettingCodes.MAX_FRAME_SIZE: sizes[i % len(sizes)],
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window,
                h2.settings.SettingCodes.HEADER_TABLE_SIZE: window % 5000,
            }
        )
        if i % 2:
            library.conn.increment_flow_control_window(more[i % len(more)])
        converse(side, library)
        side.check_invariants()
    library.conn.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    library.conn.increment_flow_control_window(1 << 20)
    converse(side, library)
    for stream_id in (1, 3):
        assert bytes(library.bodies[stream_id]) == pattern(100_000, stream_id)[:100_000]
    finished(side)


actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["open", "data", "end", "trailers", "cancel", "answer", "reply", "finish", "reset",
             "consume", "carry", "ping", "window", "settings"]
        ),
        st.integers(0, 7),
        st.integers(0, 40_000),
    ),
    max_size=60,
)  # fmt: skip


class Walk:
    """Both ends doing what they may, at random. (What it may not do breaks the library itself.)"""

    def __init__(self, how) -> None:
        self.side = Side(ready=False, consuming=False)
        self.library = Library(client=True, consuming=False)
        self.cut = cutter(how)
        self.reset_by_us: set[int] = set()
        self.answered: set[int] = set()
        self.finishing: set[int] = set()
        self.uploading: set[int] = set()
        converse(self.side, self.library, self.cut)

    def step(self, action: str, which: int, octets: int) -> None:
        stream_id = 2 * which + 1
        if action in ("open", "window", "settings", "ping"):
            self._client(action, octets)
        elif action in ("data", "end", "trailers", "cancel"):
            if stream_id in self.uploading and stream_id not in self.library.gone:
                self._upload(action, stream_id, octets)
        elif action == "carry":
            converse(self.side, self.library, self.cut)
        elif stream_id in self.side.conn.streams:
            self._server(action, stream_id, octets)
        self.side.check_invariants()

    def _client(self, action: str, octets: int) -> None:
        conn = self.library.conn
        if action == "open":
            stream_id = conn.get_next_available_stream_id()
            self.uploading.add(stream_id)
            conn.send_headers(stream_id, list(POST))
        elif action == "window":
            conn.increment_flow_control_window(octets + 1)
        elif action == "settings":
            conn.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: octets})
        else:
            conn.ping(b"12345678")

    def _upload(self, action: str, stream_id: int, octets: int) -> None:
        conn = self.library.conn
        if action == "cancel":
            conn.reset_stream(stream_id, 8)
        elif action == "trailers":
            conn.send_headers(stream_id, list(TRAILERS), end_stream=True)
        else:
            most = min(conn.local_flow_control_window(stream_id), conn.max_outbound_frame_size)
            conn.send_data(stream_id, bytes(max(0, min(most, octets))), action == "end")
        if action != "data":
            self.uploading.discard(stream_id)

    def _server(self, action: str, stream_id: int, octets: int) -> None:
        side = self.side
        stream = side.stream(stream_id)
        if action == "reset":
            self.reset_by_us.add(stream_id)
            side.conn.reset(stream, 8)
        elif action == "consume":
            side.conn.consume(stream, min(octets, stream.held))
        elif not stream.local_closed and stream_id not in self.finishing:
            if action == "answer" and stream_id not in self.answered:
                self.answered.add(stream_id)
                side.conn.send_head(stream, OK, (), False)
            elif action in ("reply", "finish") and stream_id in self.answered:
                if action == "finish":
                    self.finishing.add(stream_id)
                side.conn.send_data(stream, bytes(octets), action == "finish")


@settings(max_examples=150, deadline=None)
@given(actions, cuts)
def test_a_random_walk_with_the_library(script, how):
    walk = Walk(how)
    side = walk.side
    for action in script:
        walk.step(*action)
    converse(side, walk.library, walk.cut)
    assert not side.conn.broken
    assert not walk.library.of(h2.events.ConnectionTerminated)
    side.conn.lost("the end")
    side.check_invariants()
    assert side.conn.held == 0
    assert side.budget.total == 0
    for stream_id, owner in side.owners.items():
        # Exactly one end for each owner that did not ask for it itself.
        expected = 0 if stream_id in walk.reset_by_us else 1
        assert len(owner.closed) == expected, stream_id


@pytest.mark.parametrize("client", [True, False])
def test_goaway_of_the_library(client):
    side = Side(client=client, ready=False)
    library = Library(client=not client)
    converse(side, library)
    library.conn.close_connection(error_code=2, additional_data=b"why")
    converse(side, library)
    assert ("goaway", 2) in side.events
    assert side.conn.draining

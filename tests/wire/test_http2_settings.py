"""SETTINGS both ways (RFC 9113 section 6.5): what a change does, and when it takes effect."""

from __future__ import annotations

import hpack
import pytest

from gateway.wire import frames as f
from gateway.wire.frames import ErrorCode
from gateway.wire.frames import Setting as S  # noqa: N817

from .peer import (
    GET,
    OK,
    POST,
    SETTINGS_ACK,
    Side,
    data,
    frame,
    headers,
    play,
    raw_frames,
    same_every_way,
    settings,
    window_update,
)


def answering(octets: int, *, end: bool = True, **options) -> Side:
    """A server whose stream 1 has that much body to send."""
    side = Side(**options)
    side.feed(headers(1, GET, end=True))
    side.respond(1, OK, bytes(octets), end=end)
    side.effects()
    return side


def test_each_settings_frame_is_acknowledged():
    same_every_way(
        Side,
        settings() + settings((S.MAX_CONCURRENT_STREAMS, 1)) + settings((S.ENABLE_PUSH, 0)),
        [("SETTINGS_ACK",)] * 3,
    )


# -------------------------------------------------------------------------- concurrent streams


def test_before_the_settings_of_a_server_a_client_is_careful():
    side = Side(client=True, ready=False)
    assert not side.conn.settled
    assert side.conn.peer_max_streams == 100


def test_without_the_setting_there_is_no_limit():
    side = Side(client=True, ready=False)
    side.effects()
    side.feed(settings((S.MAX_FRAME_SIZE, 16384)))
    assert side.effects() == [("ready",), ("SETTINGS_ACK",)]
    assert side.conn.settled
    assert side.conn.peer_max_streams == 2**31 - 1


@pytest.mark.parametrize("number", [0, 1, 100, 2**32 - 1])
def test_the_setting_is_the_limit(number):
    side = Side(client=True, peer_settings=((S.MAX_CONCURRENT_STREAMS, number),))
    assert side.conn.peer_max_streams == number


def test_the_setting_may_change_and_may_be_left_out_later():
    side = Side(client=True, peer_settings=((S.MAX_CONCURRENT_STREAMS, 7),))
    side.feed(settings((S.MAX_CONCURRENT_STREAMS, 3)))
    assert side.conn.peer_max_streams == 3
    side.feed(settings())
    assert side.conn.peer_max_streams == 3
    assert side.effects() == [("ready",), ("ready",), ("SETTINGS_ACK",), ("SETTINGS_ACK",)]


# --------------------------------------------------------------------- initial window (6.9.2)


def test_a_larger_initial_window_moves_what_waits():
    side = answering(20, peer_settings=((S.INITIAL_WINDOW_SIZE, 5),))
    play(
        side,
        (settings((S.INITIAL_WINDOW_SIZE, 12)),
         [("drained", 1, 7), ("SETTINGS_ACK",), ("DATA", 1, bytes(7), False)]),
    )  # fmt: skip
    assert side.stream(1).send_window == 0


def test_a_smaller_initial_window_makes_windows_negative():
    """6.9.2: then nothing is sent until WINDOW_UPDATE brings it above zero."""
    side = answering(100, peer_settings=((S.INITIAL_WINDOW_SIZE, 50),))
    assert side.stream(1).send_window == 0
    play(
        side,
        (settings((S.INITIAL_WINDOW_SIZE, 10)), [("SETTINGS_ACK",)]),
        (window_update(1, 39), []),
        (window_update(1, 1), []),
        (window_update(1, 2), [("drained", 1, 2), ("DATA", 1, bytes(2), False)]),
        (settings((S.INITIAL_WINDOW_SIZE, 0)), [("SETTINGS_ACK",)]),
        (settings((S.INITIAL_WINDOW_SIZE, 11)),
         [("drained", 1, 1), ("SETTINGS_ACK",), ("DATA", 1, bytes(1), False)]),
    )  # fmt: skip


def test_the_end_of_a_stream_needs_no_window():
    side = answering(50, end=False, peer_settings=((S.INITIAL_WINDOW_SIZE, 50),))
    side.feed(settings((S.INITIAL_WINDOW_SIZE, 0)))
    side.effects()
    assert side.stream(1).send_window == -50
    assert side.send(1, b"", end=True) == 0
    assert side.effects()[-1] == ("DATA", 1, b"", True)


def test_the_initial_window_leaves_the_connection_alone():
    side = answering(1)
    before = side.conn.send_window
    side.feed(settings((S.INITIAL_WINDOW_SIZE, 10)))
    assert side.conn.send_window == before


def test_new_streams_begin_with_the_new_window():
    side = Side(peer_settings=((S.INITIAL_WINDOW_SIZE, 3),))
    side.feed(headers(1, GET, end=True))
    side.feed(settings((S.INITIAL_WINDOW_SIZE, 4)))
    side.feed(headers(3, GET, end=True))
    assert [side.stream(i).send_window for i in (1, 3)] == [4, 4]


def test_all_values_of_a_frame_count_in_their_order():
    """6.5.3: up and down in one frame is the last value, and nothing is sent in between."""
    side = answering(100, peer_settings=((S.INITIAL_WINDOW_SIZE, 10),))
    side.feed(settings((S.INITIAL_WINDOW_SIZE, 60), (S.INITIAL_WINDOW_SIZE, 20)))
    effects = side.effects()
    assert sum(len(e[2]) for e in effects if e[0] == "DATA") in (10, 50)
    assert side.stream(1).send_window in (0, -40)


# ------------------------------------------------------------------------------- frame size


def test_data_and_heads_keep_the_peers_frame_size():
    side = Side(peer_settings=((S.MAX_FRAME_SIZE, 20_000),))
    side.feed(headers(1, GET, end=True))
    side.respond(1, (*OK, *((b"x%d" % i, b"v" * 1000) for i in range(45))), bytes(45_000))
    lengths = [(kind, len(payload)) for kind, _, _, payload in raw_frames(side.take())]
    assert [n for kind, n in lengths if kind == f.DATA] == [20_000, 20_000, 5000]
    assert max(n for _, n in lengths) == 20_000


def test_frames_as_large_as_we_announced_are_taken():
    side = Side(max_frame_size=30_000)
    side.feed(headers(1, POST) + data(1, bytes(30_000)))
    assert side.owners[1].received == 30_000
    side.feed(data(1, bytes(30_001)))
    assert side.effects()[-1] == ("GOAWAY", 1, ErrorCode.FRAME_SIZE_ERROR)


@pytest.mark.parametrize(
    "pairs",
    [
        ((S.MAX_FRAME_SIZE, 30_000), (S.INITIAL_WINDOW_SIZE, 40_000)),
        ((S.INITIAL_WINDOW_SIZE, 40_000), (S.MAX_FRAME_SIZE, 30_000)),
    ],
)
def test_what_new_settings_allow_comes_after_their_acknowledgement(pairs):
    """6.5.3: the peer may hold to its old values until it reads the acknowledgement."""
    side = answering(40_000, peer_settings=((S.INITIAL_WINDOW_SIZE, 10),))
    side.feed(settings(*pairs))
    seen_ack = False
    for kind, _, _, payload in raw_frames(side.take()):
        seen_ack = seen_ack or kind == f.SETTINGS
        assert seen_ack or len(payload) <= f.DEFAULT_MAX_FRAME_SIZE
    assert seen_ack


# ------------------------------------------------------------------------------ table sizes


def test_the_peers_table_size_is_kept_and_announced():
    """RFC 7541 section 4.2: a size update stands at the start of the next block."""
    side = Side(client=True)
    fields = (*GET, (b"x-a", b"1" * 30))
    for _ in range(3):
        side.request(fields)
    side.effects()
    side.feed(settings((S.HEADER_TABLE_SIZE, 0)))
    side.take()
    side.request(fields)
    ((_, _, _, block),) = raw_frames(side.take())
    assert block[0] == 0x20
    reader = hpack.Decoder()
    assert tuple(reader.decode(block, raw=True)) == fields
    assert reader.header_table_size == 0


def test_trailers_that_waited_keep_the_old_table_until_the_acknowledgement():
    trailers = ((b"x-trailer", b"end"),)
    side = answering(
        20,
        end=False,
        peer_settings=((S.HEADER_TABLE_SIZE, 0), (S.INITIAL_WINDOW_SIZE, 5)),
    )
    side.conn.send_trailers(side.stream(1), trailers)
    side.effects()
    side.feed(settings((S.HEADER_TABLE_SIZE, 4096), (S.INITIAL_WINDOW_SIZE, 50)))
    reader = hpack.Decoder()
    reader.max_allowed_table_size = 0
    reader.header_table_size = 0
    for kind, flags, _, payload in raw_frames(side.take()):
        if kind == f.SETTINGS and flags & f.FLAG_ACK:
            reader.max_allowed_table_size = 4096
        elif kind == f.HEADERS:
            assert tuple(reader.decode(payload, raw=True)) == trailers


@pytest.mark.parametrize("size", [0, 100, 4096, 65_536])
def test_our_table_size_counts_from_its_acknowledgement(size):
    """Until then the client's encoder uses the initial 4096 octets (RFC 7541 section 4.2)."""
    side = Side(ready=False, header_table_size=size)
    encoder = hpack.Encoder()
    fields = [*GET, (b"x-custom", b"value" * 20)]

    def request(stream_id: int) -> bytes:
        return frame(
            f.HEADERS, f.FLAG_END_HEADERS | f.FLAG_END_STREAM, stream_id, encoder.encode(fields)
        )

    side.feed(f.PREFACE + settings() + request(1) + request(3))
    encoder.header_table_size = size
    side.feed(SETTINGS_ACK + request(5) + request(7))
    assert not side.conn.broken
    assert [side.owners[i].head.fields for i in (1, 3, 5, 7)] == [(fields[-1],)] * 4


def test_a_table_that_does_not_shrink_after_the_acknowledgement_is_an_error():
    side = Side(ready=False, header_table_size=0)
    encoder = hpack.Encoder()
    fields = [*GET, (b"x-custom", b"value")]
    octets = f.PREFACE + settings()
    for stream_id in (1, 3):
        flags = f.FLAG_END_HEADERS | f.FLAG_END_STREAM
        octets += frame(f.HEADERS, flags, stream_id, encoder.encode(fields))
        octets += SETTINGS_ACK
    side.feed(octets)
    assert side.effects()[-1][0::2] == ("GOAWAY", ErrorCode.COMPRESSION_ERROR)

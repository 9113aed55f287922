"""Hostile peers: floods and excess, RFC 9113 section 10.5.

Each limit is small here, so that little is sent. For each: the peer gets the error code that is
due, a connection that was there before goes on being served, and the limit's counter has risen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from . import frames as f
from .backend import Backend
from .frames import END_HEADERS, END_STREAM, MAX_WINDOW, Code, Setting, Type
from .launch import RunningGateway
from .peer import Peer

STREAMS: Final = 10
LIMIT: Final = 20
INDUCED: Final = 10
"""Lower than the limits of the frames that bring them about."""
FIELDS: Final = 16
LIST_SIZE: Final = 4_096
BLOCK_SIZE: Final = 8_192

LIMITS: dict[str, int | str] = {
    "max_concurrent_streams": STREAMS,
    "max_header_list_size": LIST_SIZE,
    "max_fields": FIELDS,
    "max_header_block": BLOCK_SIZE,
    "max_continuation_frames": 4,
    "flood_interval": "1h",
    "max_resets": LIMIT,
    "max_induced_resets": INDUCED,
    "max_pings": LIMIT,
    "max_settings": LIMIT,
    "max_empty_data": LIMIT,
    "max_window_updates": LIMIT,
    "max_ignored_frames": LIMIT,
}

GET = f.request()
HANG = f.request(path=b"/hang")
POST = f.request(method=b"POST")


@pytest.fixture(scope="module")
def gateway(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the small limits, in which nothing may be left over in the end."""
    with RunningGateway(tmp_path_factory.mktemp("floods"), backend.port, LIMITS) as running:
        yield running
        running.wait_until(nothing_open, "all streams to be gone")


def nothing_open(state: dict[str, int]) -> bool:
    """No stream and no exchange is left."""
    gauges = ("downstream_streams_open", "upstream_streams_open", "exchanges_open", "in_flight")
    return not any(state[name] for name in gauges)


@contextmanager
def attack(gateway: RunningGateway, counter: str) -> Iterator[Peer]:
    """A peer to attack with: meanwhile another one is served, and ``counter`` rises."""
    before = gateway.count(counter)
    with Peer(gateway.address).handshake() as other:
        assert other.get(1).status == 200
        with Peer(gateway.address).handshake() as peer:
            yield peer
        assert other.get(3).status == 200
    assert gateway.count(counter) > before


# Heads that are too large


def test_header_list_too_large(gateway: RunningGateway) -> None:
    """The request is answered 431 and the connection lives."""
    with attack(gateway, "header_list_too_large") as peer:
        peer.send(f.headers(1, GET + f.dummy_fields(5, LIST_SIZE // 4)))
        peer.expect_response(1, 431)
        assert peer.get(3).status == 200


def test_too_many_fields(gateway: RunningGateway) -> None:
    """The request is answered 431 and the connection lives."""
    with attack(gateway, "too_many_fields") as peer:
        peer.send(f.headers(1, GET + f.dummy_fields(FIELDS, 1)))
        peer.expect_response(1, 431)
        assert peer.get(3).status == 200


def test_list_too_large_with_a_body(gateway: RunningGateway) -> None:
    """A request that is answered 431 before its body has come."""
    with attack(gateway, "header_list_too_large") as peer:
        peer.send(f.headers(1, POST + f.dummy_fields(5, LIST_SIZE // 4), END_HEADERS))
        peer.expect_head(1, 431)
        peer.send(f.data(1, b"late", END_STREAM))
        assert peer.get(3).status == 200


def test_table_survives_a_list_too_large(gateway: RunningGateway) -> None:
    """RFC 7541 section 2.2: what is not kept is still decoded, or later blocks would be wrong."""
    with attack(gateway, "header_list_too_large") as peer:
        added = f.literal(b"x-kept", b"v", f.INCREMENTAL)
        peer.send(f.headers(1, GET + f.dummy_fields(5, LIST_SIZE // 4) + added))
        peer.expect_response(1, 431)
        peer.send(f.headers(3, GET + f.indexed(62)))
        peer.expect_response(3, 200)


def test_hpack_bomb(gateway: RunningGateway) -> None:
    """A block of references to one large entry: 431, and its decoded size is never taken."""
    entry = f.literal(b"x-bomb", b"x" * 3_000, f.INCREMENTAL)
    bomb = GET + f.indexed(62) * (BLOCK_SIZE - len(GET))
    decoded_size = len(bomb) * 3_000
    with attack(gateway, "header_list_too_large") as peer:
        peer.send(f.headers(1, GET + entry))
        peer.expect_response(1)
        before = gateway.worker_memory()
        for stream in range(3, 43, 2):
            peer.send(f.headers(stream, bomb))
            peer.expect_response(stream, 431)
        assert gateway.worker_memory() - before < decoded_size / 2
        assert peer.get(43).status == 200


def test_continuation_frames(gateway: RunningGateway) -> None:
    """Empty CONTINUATION frames without end."""
    with attack(gateway, "continuation_flood") as peer:
        peer.send(f.headers(1, GET, END_STREAM), f.continuation(1, b"", 0) * 8)
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


def test_continuation_octets(gateway: RunningGateway) -> None:
    """CONTINUATION frames that are few, but long."""
    with attack(gateway, "header_block_too_large") as peer:
        peer.send(f.headers(1, GET, END_STREAM))
        peer.send(f.continuation(1, f.dummy_fields(1, BLOCK_SIZE // 2), 0) * 2)
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


def test_block_too_large_in_one_frame(gateway: RunningGateway) -> None:
    """The same limit for a block without CONTINUATION."""
    with attack(gateway, "header_block_too_large") as peer:
        peer.send(f.headers(1, GET + f.dummy_fields(1, BLOCK_SIZE)))
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


# Streams


def test_too_many_streams(gateway: RunningGateway) -> None:
    """Section 5.1.2: the one too many is refused, those before it go on, and room comes again."""
    with attack(gateway, "concurrent_streams_exceeded") as peer:
        assert peer.server_settings[Setting.MAX_CONCURRENT_STREAMS] == STREAMS
        peer.send(b"".join(f.headers(1 + 2 * n, HANG) for n in range(STREAMS - 1)))
        last = 1 + 2 * (STREAMS - 1)
        peer.send(f.headers(last, POST, END_HEADERS), f.headers(last + 2, GET))
        peer.expect_reset(last + 2, Code.REFUSED_STREAM, Code.PROTOCOL_ERROR)
        peer.send(f.data(last, b"end", END_STREAM))
        peer.expect_response(last, 200)
        assert peer.get(last + 4).status == 200
        assert all(peer.responses.get(1 + 2 * n) is None for n in range(STREAMS - 1))


@pytest.mark.parametrize("request_block", [HANG, GET], ids=["unanswered", "answered"])
def test_rapid_reset(gateway: RunningGateway, request_block: bytes) -> None:
    """Requests that are cancelled as soon as they are made (CVE-2023-44487)."""
    with attack(gateway, "reset_flood") as peer:
        for stream in range(1, 4 * LIMIT, 2):
            peer.send(f.headers(stream, request_block) + f.rst_stream(stream))
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


# What makes a server reset a stream that the client has opened in the right way (CVE-2025-8671).
RESET_CAUSES: dict[str, Callable[[int], bytes]] = {
    "window above 2^31 - 1": lambda n: f.headers(n, HANG) + f.window_update(n, MAX_WINDOW),
    "window increment of 0": lambda n: f.headers(n, HANG) + f.window_update(n, 0),
    "DATA after END_STREAM": lambda n: f.headers(n, HANG) + f.data(n, b"x"),
    "HEADERS after END_STREAM": lambda n: f.headers(n, HANG) * 2,
    "PRIORITY of a wrong length": lambda n: f.headers(n, HANG) + f.frame(Type.PRIORITY, 0, n),
    "malformed head": lambda n: f.headers(n, f.request((b"X", b"1"))),
    "malformed trailers": lambda n: (
        f.headers(n, POST, END_HEADERS) + f.headers(n, f.block((b":path", b"/")))
    ),
    "content-length": lambda n: (
        f.headers(n, f.request((b"content-length", b"1"), method=b"POST"), END_HEADERS)
        + f.data(n, b"xx")
    ),
}


@pytest.mark.parametrize("cause", RESET_CAUSES.values(), ids=RESET_CAUSES)
def test_induced_resets(gateway: RunningGateway, cause: Callable[[int], bytes]) -> None:
    """Streams that are opened and then broken, so that the server does the resetting."""
    with attack(gateway, "induced_reset_flood") as peer:
        for stream in range(1, 2 * INDUCED + 4, 2):
            peer.send(cause(stream))
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


# Frames that cost us work and the peer nothing

OPEN_STREAM = f.headers(1, POST, END_HEADERS)
FLOODS = {
    "PING": (b"", f.ping(), "ping_flood"),
    "SETTINGS": (b"", f.settings(), "settings_flood"),
    "empty DATA": (OPEN_STREAM, f.data(1), "empty_data_flood"),
    "DATA of padding": (OPEN_STREAM, f.data(1, padding=3), "empty_data_flood"),
    "WINDOW_UPDATE of the connection": (b"", f.window_update(0, 1), "window_update_flood"),
    "WINDOW_UPDATE of a stream": (OPEN_STREAM, f.window_update(1, 1), "window_update_flood"),
    "PRIORITY": (b"", f.priority(1), "priority_flood"),
    "unknown frames": (b"", f.frame(0xBB, 0, 0, b"grease"), "priority_flood"),
}


@pytest.mark.parametrize(("before", "frame", "counter"), FLOODS.values(), ids=FLOODS)
def test_frame_floods(gateway: RunningGateway, before: bytes, frame: bytes, counter: str) -> None:
    """Half of what is allowed does no harm; more than it is too much."""
    with attack(gateway, counter) as peer:
        peer.send(before, frame * (LIMIT // 2))
        peer.expect_alive()
        peer.send(frame * LIMIT)
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


def test_settings_of_many_values(gateway: RunningGateway) -> None:
    """One frame may hold thousands of values, each of which touches every open stream."""
    values = [(Setting.INITIAL_WINDOW_SIZE, size) for size in (1, f.DEFAULT_WINDOW)] * 1_300
    with attack(gateway, "settings_flood") as peer:
        peer.send(f.headers(1, HANG), f.settings(values))
        peer.expect_goaway(Code.ENHANCE_YOUR_CALM)


def test_limits_are_of_one_connection(gateway: RunningGateway) -> None:
    """What one connection does is not counted against another one of the same client."""
    frames = f.ping() * (LIMIT // 2)
    peers = [Peer(gateway.address).handshake() for _ in range(4)]
    for peer in peers:
        with peer:
            peer.send(frames)
            peer.expect_alive()


def test_empty_data_that_ends_streams_is_no_flood(gateway: RunningGateway) -> None:
    """Each gRPC half-close may be an empty DATA frame."""
    with Peer(gateway.address).handshake() as peer:
        for stream in range(1, 4 * LIMIT, 2):
            peer.send(f.headers(stream, POST, END_HEADERS), f.data(stream, b"", END_STREAM))
            peer.expect_response(stream, 200)

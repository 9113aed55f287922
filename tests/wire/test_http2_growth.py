"""Receive windows that grow with what a round trip carries (gateway.wire.flow), over a path that
is simulated: our end here, the h2 library there, a delay between them and no other limit."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

import h2.events
import pytest

from gateway.wire.flow import BDP_PING
from gateway.wire.frames import Setting as S  # noqa: N817

from .peer import GET, OK, POST, SETTINGS_ACK, Library, Side, data, headers, ping

KIB = 1024
MIB = 1024 * KIB


def test_a_window_that_is_eaten_within_a_round_trip_grows():
    side = Side(initial_stream_window=1000, max_stream_window=10_000)
    side.feed(headers(1, POST))
    side.effects()
    side.feed(data(1, bytes(500)), 1.0)
    assert side.effects()[1:] == [("WINDOW_UPDATE", 1, 500), ("PING", BDP_PING)]
    side.feed(data(1, bytes(1000)), 1.04)
    side.effects()
    side.feed(ping(BDP_PING, ack=True), 1.05)
    assert ("SETTINGS", {S.INITIAL_WINDOW_SIZE: 2000}) in side.effects()
    assert side.conn.stream_window == 2000
    # The streams that are open grow with it, and new ones begin with it.
    side.feed(headers(3, POST))
    assert side.stream(3).recv_window == 2000
    assert side.stream(1).recv_window + 500 >= 2000 - 500
    side.check_invariants()


def test_a_short_exchange_never_measures():
    side = Side()
    side.feed(headers(1, POST) + data(1, bytes(10_000), end=True))
    assert ("PING", BDP_PING) not in side.effects()


def test_a_reader_that_holds_on_makes_nothing_grow():
    side = Side(initial_stream_window=1000, max_stream_window=10_000, consuming=False)
    side.feed(headers(1, POST) + data(1, bytes(1000)))
    assert ("PING", BDP_PING) not in side.effects()


def test_growth_ends_at_the_limit():
    side = Side(initial_stream_window=1000, max_stream_window=1500)
    side.feed(headers(1, POST))
    for turn in range(20):
        window = side.stream(1).recv_window
        for _ in range(4):
            side.feed(data(1, bytes(window // 4)), float(turn))
        side.feed(ping(BDP_PING, ack=True) + SETTINGS_ACK, turn + 0.05)
        side.check_invariants()
    assert side.conn.stream_window == 1500
    side.effects()
    side.feed(data(1, bytes(1400)), 30.0)
    assert ("PING", BDP_PING) not in side.effects()


@pytest.mark.parametrize("most", [65_535, 150_000, MIB])
def test_the_window_of_the_connection_grows_with_those_of_streams(most):
    """To two of them, and never above its own limit."""
    side = Side(
        initial_stream_window=65_535,
        max_stream_window=100_000,
        initial_connection_window=65_535,
        max_connection_window=most,
    )
    side.feed(headers(1, POST))
    side.effects()
    for _ in range(8):
        side.feed(data(1, bytes(8000)), 1.0)
    side.feed(ping(BDP_PING, ack=True), 1.05)
    assert side.conn.stream_window == 100_000
    announced = 65_535 - 8 * 8000
    announced += sum(e[2] for e in side.effects() if e[:2] == ("WINDOW_UPDATE", 0))
    assert announced == side.conn.recv_window
    # What is not announced yet is less than half of the window.
    assert min(200_000, most) / 2 < side.conn.recv_window <= min(200_000, most)


class Path:
    """A path with a delay and no other limit between our end and the h2 library."""

    def __init__(self, side: Side, library: Library, delay_s: float) -> None:
        self.side = side
        self.library = library
        self.delay_s = delay_s
        self.now = 0.0
        self._order = count()
        self._under_way: list[tuple[float, int, bool, bytes]] = []

    def carry(self) -> bool:
        """Put on the path what both wrote; then let the next octets arrive."""
        for to_us, octets in (
            (False, self.side.take()),
            (True, self.library.conn.data_to_send()),
        ):
            if octets:
                at = self.now + self.delay_s
                heapq.heappush(self._under_way, (at, next(self._order), to_us, octets))
        if not self._under_way:
            return False
        self.now, _, to_us, octets = heapq.heappop(self._under_way)
        if to_us:
            self.side.feed(octets, self.now)
        else:
            self.library.receive(octets)
        return True


def waves(body: int, *, upload: bool, **limits) -> tuple[list[int], Side]:
    """The bursts in which a body arrives at our end: each but the first waited for a window."""
    side = Side(client=not upload, ready=False, **limits)
    library = Library(client=upload)
    path = Path(side, library, 0.025)
    # Both sides' settings are known before the body begins.
    while path.carry():
        pass
    if upload:
        library.conn.send_headers(1, list(POST))
    else:
        side.request(GET)
        while not library.of(h2.events.RequestReceived):
            path.carry()
        library.conn.send_headers(1, list(OK))
    left = body
    bursts: dict[float, int] = {}
    while True:
        while left:
            most = library.conn.local_flow_control_window(1)
            size = min(left, most, library.conn.max_outbound_frame_size)
            if size <= 0:
                break
            left -= size
            library.conn.send_data(1, bytes(size), end_stream=not left)
            bursts[round(path.now, 4)] = bursts.get(round(path.now, 4), 0) + size
        if not path.carry():
            break
    assert left == 0
    assert side.owners[1].received == body
    assert side.owners[1].ended
    return list(bursts.values()), side


@pytest.mark.parametrize("upload", [True, False])
def test_a_mebibyte_over_50_ms_never_waits_for_a_window(upload):
    """With the limits as they are by default, as with windows without an end."""
    unlimited: dict[str, Any] = {
        "initial_stream_window": 2**31 - 1,
        "max_stream_window": 2**31 - 1,
        "initial_connection_window": 2**31 - 1,
        "max_connection_window": 2**31 - 1,
    }
    assert waves(MIB, upload=upload, **unlimited)[0] == [MIB]
    assert waves(MIB, upload=upload)[0] == [MIB]


@pytest.mark.parametrize("upload", [True, False])
def test_windows_grow_on_a_long_and_fast_path(upload):
    """Each burst fills the window, so the windows double until the limit is reached."""
    bursts, side = waves(
        MIB,
        upload=upload,
        initial_stream_window=64 * KIB,
        max_stream_window=512 * KIB,
        initial_connection_window=MIB,
    )
    assert side.conn.stream_window == 512 * KIB
    assert len(bursts) <= 8, bursts

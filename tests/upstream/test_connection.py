"""One connection of a pool: room, retirement, and what it tells the pool."""

from __future__ import annotations

from gateway.telemetry import Counter
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.pool import Pool
from gateway.wire import http2
from tests.rig import Backend, Rig, goaway
from tests.upstream.asking import Asker, ask, settled, view


def opened(rig: Rig, pool: Pool) -> UpstreamConnection:
    pool._dial()
    settled(rig, pool)
    rig.until(lambda: pool.connections and pool.connections[0].settled)
    return pool.connections[0]


def test_room_is_the_lesser_of_ours_and_the_peer_s(rig: Rig) -> None:
    few = opened(rig, rig.pool(Backend(rig, settings={3: 5}).address, name="few"))
    assert (few.limit, few.room()) == (5, 5)
    many = rig.pool(
        Backend(rig, settings={3: 5000}).address, name="many", max_streams_per_connection=7
    )
    assert opened(rig, many).room() == 7


def test_room_before_the_settings_came(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    backend.accepting = False
    pool._dial()
    rig.until(lambda: pool.connections)
    (connection,) = pool.connections
    assert not connection.settled
    assert connection.room() <= 100


def test_streams_take_room_and_give_it_back(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    connection = opened(rig, pool)
    before = connection.room()
    askers = ask(pool, 3)
    assert (connection.streams, connection.room()) == (3, before - 3)
    assert rig.count(Counter.UPSTREAM_STREAMS_OPEN) == 3
    for asker in askers:
        asker.cancel()
    assert (connection.streams, connection.room()) == (0, before)
    assert rig.count(Counter.UPSTREAM_STREAMS_OPEN) == 0


def test_a_peer_that_lowers_its_limit_below_what_is_open(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, max_connections=1)
    connection = opened(rig, pool)
    askers = ask(pool, 3)
    rig.until(lambda: len(backend.requests()) == 3)
    (peer,) = backend.peers
    peer.conn.update_settings({3: 1})
    peer.flush()
    rig.until(lambda: connection.limit == 1)
    assert connection.room() <= 0
    (waiting,) = ask(pool, 1)
    askers[0].cancel()
    askers[1].cancel()
    assert waiting.stream is None
    askers[2].cancel()
    assert waiting.stream is not None
    waiting.cancel()


def test_retire_twice_is_once(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    connection = opened(rig, pool)
    (asker,) = ask(pool, 1)
    connection.retire()
    connection.retire()
    assert repr(connection) == f"<UpstreamConnection {backend.address} retiring streams=1>"
    assert connection.room() == 0
    assert view(pool) == "[] retiring=1"
    (peer,) = backend.peers
    rig.settle()
    assert peer.goaways == []  # there are servers that end every stream at a GOAWAY
    assert asker.closed is None
    asker.cancel()
    rig.until(lambda: peer.closed)
    assert peer.goaways == [(0, 0)]
    assert asker.closed is None  # who gives up is not told


def test_goaway_on_an_idle_connection(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    opened(rig, pool)
    (peer,) = backend.peers
    peer.raw(goaway(0))
    rig.until(lambda: peer.closed)
    rig.until(lambda: view(pool) == "[]")
    assert pool.endpoint.available
    assert rig.count(Counter.UPSTREAM_CONNECTIONS_OPEN) == 0


def test_a_peer_that_breaks_the_protocol(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    opened(rig, pool)
    (asker,) = ask(pool, 1)
    (peer,) = backend.peers
    peer.raw(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0")  # WINDOW_UPDATE of 0 on the connection
    rig.until(lambda: asker.closed)
    assert asker.closed == (http2.LOST, 0)
    assert view(pool).startswith("[] retiring=1")
    rig.until(lambda: peer.goaways, "it is told why")
    assert peer.goaways == [(0, 1)]
    rig.until(lambda: view(pool) == "[]")


def test_a_lost_connection(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    opened(rig, pool)
    askers = ask(pool, 2)
    rig.until(lambda: len(backend.requests()) == 2)
    backend.peers[0].close(abort=True)
    rig.until(lambda: all(a.closed for a in askers))
    assert [a.closed for a in askers] == [(http2.LOST, 0)] * 2
    assert askers[0].stream.detail == "connection lost: Connection reset by peer"
    assert view(pool) == "[]"
    # The endpoint is not at fault for one connection.
    assert pool.endpoint.available
    again = Asker(pool)
    rig.until(lambda: again.stream)
    again.cancel()


def test_idle_since_is_the_last_stream_s_end(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    connection = opened(rig, pool)
    first, second = ask(pool, 2)
    first.cancel()
    rig.settle()
    since = connection.idle_since
    second.cancel()
    assert connection.idle_since == rig.reactor.now >= since

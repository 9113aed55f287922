"""Pools: which connections are opened, and who gets a stream on them."""

from __future__ import annotations

import socket
from contextlib import suppress

from gateway.errors import Kind
from gateway.telemetry import Counter
from tests.rig import Backend, Rig
from tests.upstream.asking import (
    MAX_STREAMS,
    NEVER,
    Asker,
    ask,
    blackhole,
    closed_port,
    settled,
    view,
)

# -------------------------------------------------------------------------------- dialling


def test_nothing_is_dialled_before_somebody_asks(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    pool.prepare()
    assert view(pool) == "[]"
    (asker,) = ask(pool, 1)
    assert view(pool) == "[] dials=1 waiting=1"
    assert rig.count(Counter.PENDING) == 1
    rig.until(lambda: asker.stream)
    assert view(pool) == "[1]"
    assert rig.count(Counter.PENDING) == 0
    asker.cancel()
    assert view(pool) == "[0]"


def test_those_that_wait_share_one_dial(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    askers = ask(pool, 20)
    assert view(pool) == "[] dials=1 waiting=20"
    rig.until(lambda: all(a.stream for a in askers))
    assert view(pool) == "[20]"
    for asker in askers:
        asker.cancel()


def test_as_many_dials_as_those_that_wait_need(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, max_streams_per_connection=2, max_connections=3)
    askers = ask(pool, 9)
    assert view(pool) == "[] dials=3 waiting=9"
    settled(rig, pool)
    assert view(pool) == "[2 2 2] waiting=3"
    for asker in askers[:3]:
        asker.cancel()
    assert view(pool) == "[2 2 2]"
    for asker in askers:
        asker.cancel()


def test_min_connections_are_kept(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, min_connections=2)
    pool.prepare()
    assert view(pool) == "[] dials=2"
    settled(rig, pool)
    assert view(pool) == "[0 0]"
    pool.prepare()
    assert view(pool) == "[0 0]"
    backend.peers[0].close()
    rig.until(lambda: len(backend.peers) == 3, "dialled again")
    settled(rig, pool)
    assert view(pool) == "[0 0]"
    assert rig.count(Counter.UPSTREAM_CONNECTIONS_OPENED) == 3


def test_load_gathers_on_the_first_connection(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, min_connections=2)
    pool.prepare()
    settled(rig, pool)
    askers = ask(pool, 5)
    assert view(pool) == "[5 0]"
    for asker in askers:
        asker.cancel()


def test_another_connection_when_the_peer_takes_no_more(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 2})
    pool = rig.pool(backend.address, max_connections=2)
    askers = ask(pool, 2)
    settled(rig, pool)
    assert view(pool) == "[2]"
    askers += ask(pool, 1)
    assert view(pool) == "[2] dials=1 waiting=1"
    settled(rig, pool)
    assert view(pool) == "[2 1]"
    askers += ask(pool, 3)
    rig.settle()
    # max_connections: the others wait.
    assert view(pool) == "[2 2] waiting=2"
    askers[0].cancel()
    assert view(pool) == "[2 2] waiting=1"
    for asker in askers:
        asker.cancel()
    assert view(pool) == "[0 0]"


def test_a_peer_that_raises_its_limit_is_used_at_once(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=1)
    askers = ask(pool, 1)
    settled(rig, pool)
    askers += ask(pool, 2)
    assert view(pool) == "[1] waiting=2"
    (peer,) = backend.peers
    peer.conn.update_settings({MAX_STREAMS: 2})
    peer.flush()
    rig.until(lambda: askers[1].stream)
    assert view(pool) == "[2] waiting=1"
    for asker in askers:
        asker.cancel()


def test_a_peer_that_takes_no_stream_now(rig: Rig) -> None:
    """MAX_CONCURRENT_STREAMS 0 is a state that may pass (RFC 9113 section 6.5.2)."""
    backend = Backend(rig, settings={MAX_STREAMS: 0})
    pool = rig.pool(backend.address, max_connections=1, min_connections=1)
    pool.prepare()
    settled(rig, pool)
    (asker,) = ask(pool, 1)
    rig.settle()
    assert view(pool) == "[0] waiting=1"
    (peer,) = backend.peers
    peer.conn.update_settings({MAX_STREAMS: 1})
    peer.flush()
    rig.until(lambda: asker.stream)
    asker.cancel()


def test_stream_share(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, max_streams_per_connection=4, stream_share=0.5)
    askers = ask(pool, 2)
    settled(rig, pool)
    assert view(pool) == "[2]"
    askers += ask(pool, 1)
    # Half is used: it goes on there, and another connection is on its way.
    assert view(pool) == "[3] dials=1"
    settled(rig, pool)
    askers += ask(pool, 2)
    assert view(pool) == "[3 2]"
    for asker in askers:
        asker.cancel()


def test_connect_refused(rig: Rig) -> None:
    port = closed_port()
    pool = rig.pool(f"127.0.0.1:{port}", backoff_base_s=1000.0, backoff_max_s=1000.0)
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.failure)
    assert asker.failure is not None
    assert asker.failure.kind is Kind.CONNECT_FAILED
    assert asker.failure.retryable
    assert asker.failure.detail == f"cannot connect to 127.0.0.1:{port}: Connection refused"
    assert view(pool) == "[] unavailable"
    assert 500.0 <= pool.retry_at - rig.reactor.now <= 1000.0
    assert rig.count(Counter.UPSTREAM_CONNECT_FAILED) == 1


def test_connect_timeout(rig: Rig) -> None:
    with blackhole() as address:
        pool = rig.pool(address, connect_timeout_s=50.0, backoff_base_s=1000.0)
        (asker,) = ask(pool, 1)
        rig.settle()
        rig.sweep(49.0)
        assert view(pool) == "[] dials=1 waiting=1"
        rig.sweep(51.0)
    assert asker.failure is not None
    assert asker.failure.kind is Kind.CONNECT_TIMEOUT
    assert asker.failure.detail == f"cannot connect to {address}: no connection within 50 s"
    assert rig.count(Counter.UPSTREAM_CONNECT_TIMEOUT) == 1


def test_addresses_of_a_name_are_taken_in_turn(rig: Rig, backend: Backend) -> None:
    """A dial that failed makes the next one try the next address."""
    pool = rig.pool(f"127.0.0.1:{closed_port()}", backoff_base_s=0.001, backoff_max_s=0.001)
    (good,) = rig.pool(backend.address, name="good").addresses
    pool.addresses.append(good)
    asker = Asker(pool)
    rig.until(lambda: asker.failure)
    rig.until(lambda: pool.endpoint.available, "dialled again, the other address")


def test_a_backend_that_comes_back_is_used_again(rig: Rig) -> None:
    port = closed_port()
    pool = rig.pool(f"127.0.0.1:{port}", backoff_base_s=0.002, backoff_max_s=0.01)
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.failure)
    rig.until(lambda: rig.count(Counter.UPSTREAM_CONNECT_FAILED) >= 4, "it goes on trying")
    assert view(pool).endswith("unavailable")
    assert f"127.0.0.1:{port}: Connection refused" in pool.last_error
    Backend(rig, port)
    rig.until(lambda: pool.endpoint.available)
    rig.until(lambda: view(pool) == "[0]")
    (asker,) = ask(pool, 1)
    assert asker.stream
    asker.cancel()


def test_backoff_grows_until_a_success(rig: Rig) -> None:
    pool = rig.pool(f"127.0.0.1:{closed_port()}", backoff_base_s=1e-6, backoff_max_s=1000.0)
    waits = []
    for _ in range(5):
        pool.retry_at = 0.0
        pool._dial()
        rig.until(lambda: not pool._dials)
        waits.append(pool.retry_at - rig.reactor.now)
        pool.retry_at = 0.0
    for number, wait in enumerate(waits):
        assert 0.5e-6 * 2**number - 1e-7 <= wait <= 1e-6 * 2**number + 1e-7
    pool.retry_at = NEVER


def test_an_endpoint_that_accepts_and_closes_is_not_dialled_in_a_loop(rig: Rig) -> None:
    """A proxy without a backend does so. It is a failed connect, with all that follows."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    accepted = []

    def refuse() -> bool:
        with suppress(BlockingIOError):
            sock, _ = listener.accept()
            sock.close()
            accepted.append(sock)
        return len(accepted) > 3 or not pool.endpoint.available

    pool = rig.pool(
        f"127.0.0.1:{listener.getsockname()[1]}",
        min_connections=1,
        backoff_base_s=1000.0,
        backoff_max_s=1000.0,
    )
    pool.prepare()
    rig.until(refuse)
    listener.close()
    assert len(accepted) == 1
    assert not pool.endpoint.available
    assert pool.retry_at > rig.reactor.now + 100.0
    assert "closed by the peer" in pool.last_error


def test_one_more_connection_that_fails_leaves_the_endpoint_usable(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=2, backoff_base_s=1000.0)
    askers = ask(pool, 1)
    settled(rig, pool)
    backend.sock.close()
    askers += ask(pool, 1)
    assert view(pool) == "[1] dials=1 waiting=1"
    rig.until(lambda: not pool._dials)
    assert view(pool) == "[1] waiting=1"
    askers[0].cancel()
    assert view(pool) == "[1]"
    askers[1].cancel()


# ------------------------------------------------------------------------------- the queue


def test_the_queue_is_bounded_over_the_cluster(rig: Rig) -> None:
    with blackhole() as one, blackhole() as two:
        cluster = rig.cluster(one, two, max_pending=3)
        first, second = cluster.pools.values()
        askers = ask(first, 2) + ask(second, 2)
        assert [a.refused for a in askers] == [False, False, False, True]
        assert rig.count(Counter.PENDING_OVERFLOW) == 1
        assert rig.count(Counter.PENDING) == 3
        askers[0].cancel()
        (another,) = ask(second, 1)
        assert not another.refused
        for asker in [*askers, another]:
            asker.cancel()
        assert rig.count(Counter.PENDING) == 0


def test_the_queue_has_a_deadline(rig: Rig) -> None:
    with blackhole() as address:
        pool = rig.pool(address, connect_timeout_s=1000.0)
        now = rig.reactor.now
        early, late = Asker(pool, now + 10.0), Asker(pool, now + 20.0)
        rig.sweep(11.0)
        assert early.failure is not None
        assert early.failure.kind is Kind.CONNECT_TIMEOUT
        assert late.failure is None
        assert view(pool) == "[] dials=1 waiting=1"
        late.cancel()
    assert rig.count(Counter.PENDING_TIMEOUT) == 1


def test_the_deadline_of_the_queue_when_connected(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=1, keepalive_interval_s=None)
    (first,) = ask(pool, 1)
    settled(rig, pool)
    (second,) = ask(pool, 1, wait_until=rig.reactor.now + 10.0)
    rig.sweep(11.0)
    assert second.failure is not None
    assert second.failure.kind is Kind.PENDING_TIMEOUT
    assert not second.waiting
    first.cancel()


def test_a_waiter_that_gave_up_leaves_no_slot(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=1)
    (first,) = ask(pool, 1)
    settled(rig, pool)
    second, third = ask(pool, 2)
    second.cancel()
    assert view(pool) == "[1] waiting=1"
    first.cancel()
    rig.until(lambda: third.stream)
    assert second.stream is None
    assert view(pool) == "[1]"
    third.cancel()
    assert view(pool) == "[0]"


def test_all_gave_up_while_dialling(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    for asker in ask(pool, 3):
        asker.cancel()
    assert view(pool) == "[] dials=1"
    settled(rig, pool)
    assert view(pool) == "[0]"


def test_those_that_wait_are_served_in_order(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=1, min_connections=1)
    pool.prepare()
    settled(rig, pool)
    askers = ask(pool, 4)
    for i in range(4):
        assert [a.stream is not None for a in askers] == [True] * (i + 1) + [False] * (3 - i)
        askers[i].cancel()

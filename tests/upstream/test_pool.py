"""Pools: which connections are opened, who gets a stream on them, and when they go.

``view(pool)`` says in one line what there is (STYLE.md, 6): the streams of each open connection,
then what is retiring, being dialled and waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from gateway import config
from gateway.errors import Failure, Kind
from gateway.telemetry import Counter
from gateway.upstream.connection import UpstreamConnection
from gateway.upstream.pool import Pool
from gateway.wire import http2
from tests.rig import Backend, Rig, goaway, request

FIELDS = tuple(request())
MAX_STREAMS = 3  # SETTINGS_MAX_CONCURRENT_STREAMS
NEVER = float("inf")


def view(pool: Pool) -> str:
    """The state of a pool: ``[1 0] retiring=1 dials=1 waiting=2``, zeros left out."""
    text = "[" + " ".join(str(c.streams) for c in pool.connections) + "]"
    for name, number in (
        ("retiring", len(pool.retiring)),
        ("dials", len(pool._dials)),
        ("waiting", len(pool._waiting)),
    ):
        if number:
            text += f" {name}={number}"
    return text if pool.endpoint.available else text + " unavailable"


class Asker:
    """A request without a client: takes a stream, or waits for one."""

    def __init__(self, pool: Pool, wait_until: float = NEVER) -> None:
        self.pool = pool
        self.wait_until = wait_until
        self.waiting = False
        self.connection: UpstreamConnection | None = None
        self.stream: Any = None
        self.failure: Failure | None = None
        self.closed: tuple[int, int] | None = None
        self.refused = False
        connection = pool.acquire(pool.reactor.now)
        if connection is not None:
            self.on_connection(connection)
        elif not pool.wait(self, pool.reactor.now):
            self.refused = True

    def on_connection(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        self.stream = connection.open_stream(self, FIELDS, b"", True, False)

    def on_unavailable(self, failure: Failure) -> None:
        self.failure = failure

    def response_head(self, head: object, end: bool) -> None:
        pass

    def response_data(self, data: bytes, end: bool) -> None:
        pass

    def response_closed(self, why: int, code: int) -> None:
        self.closed = (why, code)
        self._done()

    def cancel(self) -> None:
        """Give up, whatever it is doing."""
        if self.waiting:
            self.pool.cancel(self)
        elif self.connection is not None and self.stream.open:
            self.connection.codec.reset(self.stream, 8)
            self._done()

    def _done(self) -> None:
        connection, self.connection = self.connection, None
        assert connection is not None
        connection.stream_closed()


def ask(pool: Pool, number: int, **options: Any) -> list[Asker]:
    return [Asker(pool, **options) for _ in range(number)]


def settled(rig: Rig, pool: Pool) -> None:
    """Wait until dials are done and the settings of all connections are known."""
    rig.until(
        lambda: not pool._dials and all(c.codec.settled for c in pool.connections), repr(pool)
    )


@contextmanager
def blackhole() -> Iterator[str]:
    """An address that neither accepts nor refuses: a listening socket whose queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
            fillers.append(filler)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for filler in fillers:
            filler.close()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# ---------------------------------------------------------------------------------- dialling


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


# ------------------------------------------------------------------------------ idle, age, end


def test_idle_timeout(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, idle_timeout_s=100.0)
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.stream)
    rig.sweep(200.0)
    assert view(pool) == "[1]"
    asker.cancel()
    rig.settle()
    rig.sweep(99.0)
    assert view(pool) == "[0]"
    rig.sweep(101.0)
    assert view(pool) == "[] retiring=1"
    (peer,) = backend.peers
    rig.until(lambda: peer.closed)
    assert peer.goaways == [(0, 0)]
    peer.close()
    rig.until(lambda: view(pool) == "[]")
    assert rig.count(Counter.UPSTREAM_CLOSED_IDLE) == 1


def test_idle_timeout_leaves_min_connections(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(
        backend.address, idle_timeout_s=100.0, min_connections=1, max_streams_per_connection=1
    )
    pool.prepare()
    askers = ask(pool, 3)
    rig.until(lambda: all(a.stream for a in askers))
    assert view(pool) == "[1 1 1]"
    for asker in askers:
        asker.cancel()
    rig.settle()
    rig.sweep(101.0)
    assert view(pool).startswith("[0]")


def test_max_idle(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, max_idle=1, max_streams_per_connection=1)
    askers = ask(pool, 3)
    rig.until(lambda: all(a.stream for a in askers))
    connections = list(pool.connections)
    for asker in askers:
        asker.cancel()
    # The one that has been idle for longest goes first.
    assert pool.connections == connections[2:]
    assert rig.count(Counter.UPSTREAM_CLOSED_IDLE) == 2


def test_max_connection_age(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(
        backend.address,
        max_connection_age_s=100.0,
        max_connection_age_jitter=0.1,
        keepalive_interval_s=None,
    )
    (old,) = ask(pool, 1)
    rig.until(lambda: old.stream)
    rig.sweep(89.0)
    assert view(pool) == "[1]"
    rig.sweep(111.0)
    assert view(pool) == "[] retiring=1"
    (young,) = ask(pool, 1)
    rig.until(lambda: young.stream)
    assert view(pool) == "[1] retiring=1"
    # No grace configured: the old stream goes on as long as it likes.
    rig.sweep(80.0)
    rig.settle()
    assert old.stream.open
    peer, at, _ = backend.request()
    peer.reply(at)
    rig.until(lambda: old.closed == (http2.ENDED, 0))
    rig.until(lambda: peer.closed)
    young.cancel()
    assert rig.count(Counter.UPSTREAM_CLOSED_AGE) == 1


def test_age_differs_from_connection_to_connection(rig: Rig, backend: Backend) -> None:
    """Connections that were opened together do not retire together."""
    pool = rig.pool(
        backend.address,
        min_connections=20,
        max_connections=20,
        max_connection_age_s=100.0,
        max_connection_age_jitter=0.5,
        idle_timeout_s=None,
    )
    pool.prepare()
    settled(rig, pool)
    first = list(pool.connections)
    rig.sweep(100.0)
    assert 0 < sum(c.retiring for c in first) < 20
    rig.sweep(151.0)
    assert all(c.retiring for c in first)


def test_max_connection_age_grace(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(
        backend.address,
        max_connection_age_s=100.0,
        max_connection_age_jitter=0.0,
        max_connection_age_grace_s=50.0,
        keepalive_interval_s=None,
    )
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.stream)
    rig.sweep(101.0)
    assert view(pool) == "[] retiring=1"
    rig.sweep(150.0)
    assert asker.closed is None
    rig.sweep(152.0)
    assert asker.closed == (http2.LOST, 0)
    assert view(pool) == "[]"


def test_goaway_in_two_steps(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    askers = ask(pool, 3)
    rig.until(lambda: len(backend.requests()) == 3)
    (peer,) = backend.peers
    peer.raw(goaway(2**31 - 1))
    rig.until(lambda: pool.retiring)
    assert view(pool) == "[] retiring=1"
    rig.settle()
    assert [a.closed for a in askers] == [None, None, None]
    peer.raw(goaway(peer.order[0]))
    rig.until(lambda: askers[2].closed)
    assert [a.closed for a in askers] == [None, (http2.REFUSED, 0), (http2.REFUSED, 0)]
    peer.reply(peer.order[0])
    rig.until(lambda: askers[0].closed == (http2.ENDED, 0))
    rig.until(lambda: peer.closed)
    peer.close()
    rig.until(lambda: view(pool) == "[]")
    assert rig.count(Counter.UPSTREAM_CLOSED_GOAWAY) == 1


def test_goaway_while_requests_wait(rig: Rig) -> None:
    backend = Backend(rig, settings={MAX_STREAMS: 1})
    pool = rig.pool(backend.address, max_connections=1)
    (first,) = ask(pool, 1)
    settled(rig, pool)
    (second,) = ask(pool, 1)
    (peer,) = backend.peers
    peer.raw(goaway(2**31 - 1))
    rig.until(lambda: second.stream, "a connection in place of the one that goes")
    assert first.closed is None
    assert view(pool) == "[1] retiring=1"
    first.cancel()
    second.cancel()


def test_goaway_with_an_error_is_remembered(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    (asker,) = ask(pool, 1)
    backend.request()
    backend.peers[0].raw(goaway(0, 11))
    rig.until(lambda: asker.closed)
    assert asker.closed == (http2.REFUSED, 11)
    assert pool.last_error == f"{backend.address}: GOAWAY with code 11"


def test_keepalive_timeout(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, keepalive_interval_s=10.0, keepalive_timeout_s=2.0)
    (asker,) = ask(pool, 1)
    peer, _, _ = backend.request()
    rig.settle()
    rig.sweep(11.0)
    rig.until(lambda: peer.pings == 1)
    rig.settle()
    # It was answered.
    rig.sweep(9.0)
    assert asker.closed is None
    peer.answering = False
    rig.sweep(22.0)
    rig.settle()
    assert peer.pings == 2
    rig.sweep(25.0)
    assert asker.closed == (http2.LOST, 0)
    assert asker.stream.detail == "keepalive PING not answered"
    assert rig.count(Counter.UPSTREAM_CLOSED_KEEPALIVE_TIMEOUT) == 1


def test_no_keepalive_without_streams(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address, keepalive_interval_s=10.0, idle_timeout_s=None)
    (asker,) = ask(pool, 1)
    peer, _, _ = backend.request()
    asker.cancel()
    rig.sweep(11.0)
    rig.sweep(22.0)
    rig.settle()
    assert peer.pings == 0
    assert view(pool) == "[0]"


# --------------------------------------------------------------------------------- the queue


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


# ----------------------------------------------------------------------------------- removal


def test_drain_finishes_what_is_open(rig: Rig, backend: Backend) -> None:
    cluster = rig.cluster(backend.address)
    (pool,) = cluster.pools.values()
    (asker,) = ask(pool, 1)
    peer, at, _ = backend.request()
    cluster.update(())
    assert view(pool) == "[] retiring=1"
    assert not pool.endpoint.usable
    rig.settle()
    assert asker.closed is None
    peer.reply(at)
    rig.until(lambda: asker.closed == (http2.ENDED, 0))
    rig.until(lambda: peer.closed)


def test_drain_sends_those_that_wait_elsewhere(rig: Rig) -> None:
    with blackhole() as address:
        cluster = rig.cluster(address)
        (pool,) = cluster.pools.values()
        (asker,) = ask(pool, 1)
        cluster.update(())
        assert asker.failure is not None
        assert asker.failure.kind is Kind.NO_ENDPOINT
        assert asker.failure.retryable
        assert view(pool) == "[]"
        assert rig.reactor.targets == {}


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_UNIX])
def test_other_families(rig: Rig, family: socket.AddressFamily, tmp_path: Any) -> None:
    backend = Backend(rig)
    backend.sock.close()
    try:
        backend.sock = socket.socket(family)
        backend.sock.bind(("::1", 0) if family == socket.AF_INET6 else str(tmp_path / "s"))
    except OSError as error:
        pytest.skip(f"no {family.name} here: {error}")
    backend.sock.listen()
    backend.sock.setblocking(False)
    address = (
        f"[::1]:{backend.sock.getsockname()[1]}"
        if family == socket.AF_INET6
        else f"unix:{tmp_path}/s"
    )
    pool = rig.pool(address)
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.stream)
    assert repr(pool).startswith(f"<Pool {address} ")
    asker.cancel()


def test_repr_says_what_there_is(rig: Rig, backend: Backend) -> None:
    pool = rig.pool(backend.address)
    assert repr(pool) == (f"<Pool {backend.address} connections=[] retiring=0 dials=0 waiting=0>")
    (asker,) = ask(pool, 1)
    rig.until(lambda: asker.stream)
    assert repr(pool) == (
        f"<Pool {backend.address} connections=[<UpstreamConnection {backend.address} open "
        "streams=1>] retiring=0 dials=0 waiting=0>"
    )
    asker.cancel()


def test_limits_are_the_configuration_s(rig: Rig, backend: Backend) -> None:
    rig.limits = config.Http2(initial_stream_window=100_000)
    pool = rig.pool(backend.address)
    (asker,) = ask(pool, 1)
    peer, at, _ = backend.request()
    assert peer.room(at) == 100_000
    assert peer.conn.remote_settings.enable_push == 0
    asker.cancel()

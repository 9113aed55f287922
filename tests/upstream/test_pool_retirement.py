"""Pools: connections that are idle, old, told to go or dead, and the removal of the endpoint."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gateway import config
from gateway.errors import Kind
from gateway.telemetry import Counter
from gateway.wire import http2
from tests.rig import Backend, Rig, goaway
from tests.upstream.asking import (
    MAX_STREAMS,
    ask,
    blackhole,
    settled,
    view,
)

# -------------------------------------------------------------------------- idle, age, end


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
        rig.reactor.turn(0.0)
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


# --------------------------------------------------------------------------------- removal


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
        assert rig.targets() == []


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

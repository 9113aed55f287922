"""Requests that are sent again: refused, above a GOAWAY, or to an endpoint that is down."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from gateway import config
from gateway.proxy.exchange import REPLAY_LIMIT
from gateway.telemetry import Counter
from tests.proxy.journey import POST, Journey
from tests.rig import (
    GRPC,
    REFUSED,
    Backend,
    Rig,
    goaway,
    request,
)
from tests.upstream.asking import blackhole


@pytest.fixture
def journey(rig: Rig, backend: Backend) -> Journey:
    return Journey(rig, backend)


# ---------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("size", [0, 5, 60_000])
def test_refused_stream_goes_to_the_other_endpoint(rig: Rig, size: int) -> None:
    first, second = Backend(rig), Backend(rig)
    journey = Journey(rig, first, second)
    journey.warm()
    body = b"x" * size
    stream_id = journey.client.send(POST, body or None)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: asked.ended)
    peer.rst(at, REFUSED)
    peer, at, asked = other.request()
    rig.until(lambda: asked.ended)
    assert asked.body == body
    peer.reply(at)
    assert journey.over(stream_id).summary() == (200, b"ok", None, True, None)
    assert rig.count(Counter.RETRIED) == 1
    assert len(refusing.requests()) == 1


def test_credit_is_given_once_however_often_the_body_is_sent(rig: Rig) -> None:
    """The window of the client's stream never rises above what it began with."""
    first, second = Backend(rig), Backend(rig)
    rig.limits = config.Http2(initial_stream_window=50_000, max_stream_window=50_000)
    journey = Journey(rig, first, second)
    journey.warm()
    stream_id = journey.client.send(POST, b"x" * 40_000, end=False)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: len(asked.body) == 40_000)
    peer.rst(at, REFUSED)
    peer, at, asked = other.request()
    rig.until(lambda: len(asked.body) == 40_000)
    rig.settle()
    assert journey.client.room(stream_id) <= 50_000
    journey.client.data(stream_id, b"y" * 10_000, end=True)
    rig.until(lambda: asked.ended)
    assert asked.body == b"x" * 40_000 + b"y" * 10_000
    peer.reply(at)
    journey.over(stream_id)


def test_what_comes_while_the_request_waits_is_sent_later(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    backend.accepting = False  # SETTINGS don't come, but the dial succeeds: nothing is sent yet
    stream_id = journey.client.send(POST, b"a" * 1000, end=False)
    journey.client.data(stream_id, b"b" * 1000)
    journey.client.head(stream_id, [(b"x-sum", b"1")], end=True)
    journey.rig.settle()
    backend.accepting = True
    peer, at, asked = backend.request()
    rig.until(lambda: asked.ended)
    assert asked.body == b"a" * 1000 + b"b" * 1000
    assert asked.trailers == {b"x-sum": b"1"}
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_a_body_above_the_limit_is_not_sent_again(rig: Rig) -> None:
    first, second = Backend(rig), Backend(rig)
    journey = Journey(rig, first, second)
    journey.warm()
    size = REPLAY_LIMIT + 1
    stream_id = journey.client.send(POST, b"x" * 60_000, end=False)
    rig.until(lambda: first.requests() or second.requests())
    refusing, other = (first, second) if first.requests() else (second, first)
    peer, at, asked = refusing.request()
    rig.until(lambda: journey.client.room(stream_id) >= size - 60_000)
    journey.client.data(stream_id, b"x" * (size - 60_000))
    rig.until(lambda: len(asked.body) == size)
    peer.rst(at, REFUSED)
    message = journey.over(stream_id)
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"upstream_refused")
    assert other.requests() == []
    assert rig.count(Counter.RETRIED) == 0


def test_a_burst_on_a_new_connection_keeps_the_peer_s_limit(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 2})
    journey = Journey(rig, backend, max_connections=1)
    streams = [journey.client.send(POST, b"%d" % i) for i in range(6)]

    def answer() -> bool:
        for peer, at in backend.requests():
            message = peer.messages[at]
            if message.ended and peer.closed is None and not message.trailers:
                message.trailers = {b"answered": b""}
                peer.reply(at, message.body)
        return all(journey.client.message(s).over for s in streams)

    rig.until(answer)
    assert [journey.client.message(s).body for s in streams] == [b"%d" % i for i in range(6)]


def test_refused_by_the_only_endpoint(rig: Rig, backend: Backend, journey: Journey) -> None:
    """It may take the next one: it said so of this stream, not of the connection."""
    stream_id = journey.client.send(POST, b"a")
    peer, at, _ = backend.request()
    peer.rst(at, REFUSED)
    peer, at, asked = backend.request(1)
    rig.until(lambda: asked.ended)
    assert asked.body == b"a"
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_a_request_is_not_tried_for_ever(rig: Rig) -> None:
    backends = [Backend(rig) for _ in range(4)]
    journey = Journey(rig, *backends, max_retries=2)
    journey.warm()
    stream_id = journey.client.send(POST)

    def refuse() -> bool:
        for backend in backends:
            for peer, at in backend.requests():
                if at in peer.messages and peer.messages[at].reset is None:
                    peer.messages[at].reset = REFUSED
                    peer.rst(at, REFUSED)
        return journey.client.message(stream_id).over

    rig.until(refuse)
    assert journey.over(stream_id).status == 503
    assert sum(len(backend.requests()) for backend in backends) == 3


def test_streams_above_the_last_of_a_goaway_are_sent_again(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    journey.warm()
    streams = [journey.client.send(POST, b"%d" % i) for i in range(4)]
    rig.until(lambda: len(backend.requests()) == 4)
    (peer,) = backend.peers
    rig.until(lambda: all(m.ended for m in peer.messages.values()))
    taken = peer.order[:2]
    peer.raw(goaway(2**31 - 1))
    rig.settle()
    peer.raw(goaway(taken[-1]))
    rig.until(lambda: len(backend.requests()) == 6, "the two above on another connection")
    other = backend.peers[1]
    rig.until(lambda: all(m.ended for m in other.messages.values()))
    assert sorted(m.body for m in other.messages.values()) == [b"2", b"3"]
    for stream_id in taken:
        peer.reply(stream_id, b"old")
    for stream_id in other.order:
        other.reply(stream_id, b"new")
    for stream_id in streams:
        journey.over(stream_id)
    assert [journey.client.messages[s].body for s in streams] == [b"old", b"old", b"new", b"new"]
    rig.until(lambda: peer.closed, "the connection that was told to go is closed")
    assert rig.count(Counter.UPSTREAM_CLOSED_GOAWAY) == 1
    assert rig.count(Counter.RETRIED) == 2


def test_a_response_that_began_is_not_tried_again(rig: Rig, backend: Backend) -> None:
    journey = Journey(rig, backend)
    stream_id = journey.client.send(request())
    peer, at, _ = backend.request()
    peer.head(at, [(b":status", b"200")])
    rig.until(lambda: journey.client.message(stream_id).status)
    peer.rst(at, REFUSED)
    message = journey.over(stream_id)
    assert (message.status, message.ended) == (200, False)
    assert message.reset not in (None, REFUSED)
    assert len(backend.requests()) == 1


# ----------------------------------------------------------------- endpoints that are down


def test_a_failed_dial_sends_the_request_elsewhere(rig: Rig, backend: Backend) -> None:
    down = Backend(rig)
    down.close()
    journey = Journey(rig, down, backend, backoff_base_s=1000.0)
    streams = [journey.client.send(POST, b"x") for _ in range(2)]
    for number in range(2):
        peer, at, asked = backend.request(number)
        rig.until(partial(asked.body_ends, b"x"))
        peer.reply(at)
    assert [journey.over(s).status for s in streams] == [200, 200]
    assert rig.count(Counter.RETRIED) == 1
    assert rig.count(Counter.PENDING) == 0


def test_all_endpoints_are_down(rig: Rig) -> None:
    down = [Backend(rig) for _ in range(2)]
    for backend in down:
        backend.close()
    journey = Journey(rig, *down, backoff_base_s=1000.0, backoff_max_s=1000.0)
    message = journey.over(journey.client.send(POST, b"x"))
    # Both were tried for this one: it is told of the last connect.
    assert (message.status, message.fields[b"x-gateway-error"]) == (502, b"connect_failed")
    # They are known to be down for this one.
    message = journey.over(journey.client.send(POST, b"x"))
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"no_endpoint")
    assert message.body.startswith(b"no_endpoint: no endpoint of cluster c is available")
    assert b"last error: " + down[0].address.encode() + b": Connection refused" in message.body
    message = journey.over(journey.client.send(GRPC, b"x"))
    assert message.fields[b"grpc-status"] == b"14"


def test_an_endpoint_that_is_back_within_the_wait(rig: Rig) -> None:
    """A request waits for the next dial when that comes within ``pending_timeout``."""
    down = Backend(rig)
    down.close()
    journey = Journey(rig, down, backoff_base_s=0.2, backoff_max_s=0.2, pending_timeout_s=60.0)
    message = journey.over(journey.client.send(POST, b"x"))
    assert message.status == 502
    back = Backend(rig, down.port)
    stream_id = journey.client.send(POST, b"x")
    peer, at, _ = back.request()
    peer.reply(at)
    assert journey.over(stream_id).status == 200


def test_the_queue_is_full(rig: Rig) -> None:
    backend = Backend(rig, settings={3: 1})
    journey = Journey(rig, backend, max_connections=1, max_pending=1)
    journey.warm()
    streams = [journey.client.send(POST, b"x") for _ in range(3)]
    message = journey.over(streams[2])
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"overloaded")
    assert b"clusters.c.max_pending" in message.body
    for number in range(2):
        peer, at, _ = backend.request(number)
        peer.reply(at)
        assert journey.over(streams[number]).status == 200


@pytest.mark.parametrize("route", [{}, {"connect_timeout_s": 2.0}])
def test_the_wait_is_over(rig: Rig, route: dict) -> None:
    backend = Backend(rig, settings={3: 1})
    journey = Journey(
        rig,
        backend,
        max_connections=1,
        pending_timeout_s=20.0,
        keepalive_interval_s=None,
        route=route,
    )
    journey.warm()
    first, second = (journey.client.send(POST, b"x") for _ in range(2))
    rig.until(lambda: rig.count(Counter.PENDING) == 1)
    rig.sweep(1.5)
    assert rig.count(Counter.PENDING) == 1
    rig.sweep(2.5 if route else 19.0)
    assert rig.count(Counter.PENDING) == (0 if route else 1)
    rig.sweep(21.0)
    message = journey.over(second)
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"pending_timeout")
    peer, at, _ = backend.request()
    peer.reply(at)
    assert journey.over(first).status == 200


def test_removed_endpoints_hand_their_waiters_to_one_that_stays(rig: Rig, backend: Backend) -> None:
    with contextlib.ExitStack() as stack:
        holes = [stack.enter_context(blackhole()) for _ in range(5)]
        journey = Journey(rig, backend)
        stays = config.ClusterEndpoint(address=backend.address)
        gone = [config.ClusterEndpoint(address=hole) for hole in holes]
        journey.cluster.update([*gone, stays])
        rig.resolve(journey.cluster)
        journey.warm()
        streams = [journey.client.send(POST, b"x") for _ in range(6)]
        rig.until(lambda: backend.requests() and rig.count(Counter.PENDING) == 5)
        journey.cluster.update([stays])
        for number in range(6):
            peer, at, _ = backend.request(number)
            peer.reply(at)
        assert [journey.over(s).status for s in streams] == [200] * 6


def test_streams_finish_on_a_removed_endpoint(rig: Rig, backend: Backend) -> None:
    other = Backend(rig)
    journey = Journey(rig, backend)
    old = journey.client.send(POST, b"a", end=False)
    peer, at, asked = backend.request()
    journey.cluster.update([config.ClusterEndpoint(address=other.address)])
    rig.resolve(journey.cluster)
    new = journey.client.send(POST, b"b")
    other_peer, other_at, _ = other.request()
    other_peer.reply(other_at, b"new")
    assert journey.over(new).body == b"new"
    journey.client.data(old, b"c", end=True)
    rig.until(lambda: asked.ended)
    assert asked.body == b"ac"
    peer.reply(at, b"old")
    assert journey.over(old).body == b"old"
    rig.until(lambda: peer.closed)


def test_the_process_holds_too_much(rig: Rig, backend: Backend, journey: Journey) -> None:
    rig.budget.total += rig.budget.limit + 1
    message = journey.over(journey.client.send(POST, b"x"))
    rig.budget.total -= rig.budget.limit + 1
    assert (message.status, message.fields[b"x-gateway-error"]) == (503, b"overloaded")
    assert rig.count(Counter.PROCESS_BUFFER_LIMIT) == 1
    assert backend.requests() == []
